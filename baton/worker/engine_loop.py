"""The thread that owns the engine."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from baton.engine.base import Engine, EngineStats
from baton.engine.events import Event
from baton.telemetry.scope import scoped_thread

T = TypeVar("T")

MAX_STEPS_AHEAD = 16
"""Steps whose events wait for the asyncio loop. An engine that is faster than the loop waits: its
tokens could not be sent any sooner."""

Command = Callable[[Engine], None]
Deliver = Callable[[list[Event], EngineStats], None]


class EngineLoop:
    """Runs steps and commands of one engine on one thread, and hands events to the asyncio loop.

    Commands run between two steps, in the order in which they were given. The queue of commands is
    bounded by its callers: a few per open stream, and open streams are bounded.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Deliver,
        on_failed: Callable[[BaseException], None],
        cores: Sequence[int] = (),
    ) -> None:
        """Prepare the thread.

        Args:
            engine: called only here from now on, but for its thread-safe methods.
            deliver: called on the asyncio loop with the events of a step.
            on_failed: called on the asyncio loop if a step raises, which ends the thread, or if
                `deliver` does.
            cores: to which the thread and the compute threads that it starts are bound; empty:
                any. The process's other threads are not bound.
        """
        self._engine = engine
        self._deliver = deliver
        self._on_failed = on_failed
        self._cores = cores
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._ahead = threading.Semaphore(MAX_STEPS_AHEAD)
        self._loop = asyncio.get_running_loop()
        self._thread = scoped_thread(self._run, "engine")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread after the step in progress; commands given before are still run."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    async def call(self, command: Callable[[Engine], T]) -> T:
        """Run a command on the engine's thread, and return or raise what it does.

        A caller that is cancelled does not take the command back.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def run(engine: Engine) -> None:
            try:
                result = command(engine)
            except Exception as error:  # noqa: BLE001 - it is the caller's, and reaches it
                self._loop.call_soon_threadsafe(_fail, future, error)
            else:
                self._loop.call_soon_threadsafe(_fulfil, future, result)

        self._commands.put(run)
        return await future

    def _run(self) -> None:
        engine = self._engine
        try:
            if self._cores:
                os.sched_setaffinity(0, self._cores)  # 0: this thread
            while True:
                if not self._run_commands(block=not engine.has_work()):
                    return
                events = engine.step() if engine.has_work() else []
                self._ahead.acquire()
                self._loop.call_soon_threadsafe(self._deliver_step, events, engine.stats())
        except BaseException as error:  # noqa: BLE001 - a failed engine ends the process
            self._loop.call_soon_threadsafe(self._on_failed, error)

    def _deliver_step(self, events: list[Event], stats: EngineStats) -> None:
        self._ahead.release()
        try:
            self._deliver(events, stats)
        except Exception as error:  # noqa: BLE001 - what is lost would be waited for in vain
            self._on_failed(error)

    def _run_commands(self, *, block: bool) -> bool:
        """Run what waits; return False when the loop shall end."""
        while block or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command(self._engine)
            block = False
        return True


def _fulfil(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
