"""A thread that runs blocking jobs one after another for an event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from baton.telemetry.logs import get_logger
from baton.telemetry.scope import scoped_thread

log = get_logger(__name__)

Job = Callable[[], Callable[[], None]]
"""Runs on the thread; the callable that it returns then runs on the loop."""
T = TypeVar("T")


class IoThread:
    """Runs jobs in FIFO order. The thread is a daemon: one that hangs in the kernel does not keep
    the process from exiting. The submitter bounds the number of jobs."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = asyncio.Event()
        self._thread = scoped_thread(self._run, name)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Run a job after those in the queue. It must not raise."""
        self._jobs.put(job)

    async def call(self, work: Callable[[], T]) -> T:
        """Run a function after the jobs in the queue; return its result, raise its exception.

        If the caller is cancelled, the function still runs.
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
        """Wait for the jobs in the queue; return whether they ended in time. None: no time
        limit."""
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
