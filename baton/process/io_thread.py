"""A thread that does one blocking thing after another for an event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from baton.telemetry.logs import get_logger
from baton.telemetry.scope import scoped_thread

log = get_logger(__name__)

Job = Callable[[], Callable[[], None]]
"""Runs on the thread; what it answers runs on the loop afterwards."""
T = TypeVar("T")


class IoThread:
    """Jobs in the order they came. The thread is a daemon: one that hangs in the kernel does not
    keep the process from ending. Whoever submits bounds how many there are.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = asyncio.Event()
        self._thread = scoped_thread(self._run, name)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Do this after what is queued. A job must not raise."""
        self._jobs.put(job)

    async def call(self, work: Callable[[], T]) -> T:
        """Do this after what is queued; return what it returns, raise what it raises.

        A caller that is cancelled leaves it to be done.
        """
        done: asyncio.Future[T] = self._loop.create_future()

        def job() -> Callable[[], None]:
            try:
                return partial(_set_result, done, work())
            except Exception as error:  # noqa: BLE001 - it is the caller's
                return partial(_set_exception, done, error)

        self.submit(job)
        return await done

    async def stop(self, seconds: float | None) -> bool:
        """Let what is queued end; return whether it did in time. None: wait as long as it takes."""
        self._jobs.put(None)
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._loop.call_soon_threadsafe(job())
        self._loop.call_soon_threadsafe(self._ended.set)


def _set_result(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _set_exception(done: "asyncio.Future[T]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
