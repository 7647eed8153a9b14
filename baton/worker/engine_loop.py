"""Thread that owns the engine."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from baton.engine.base import Engine, EngineStats
from baton.engine.events import Event
from baton.host.priority import add_niceness
from baton.telemetry.scope import scoped_thread

T = TypeVar("T")

MAX_STEPS_AHEAD = 16
"""Maximum steps whose events wait for the asyncio loop. A faster engine waits for the loop: its
tokens could not be sent any sooner.
"""
IDLE_SECONDS = 1.0
"""Interval in seconds at which an idle engine is polled for work; a failed one then raises."""

Command = Callable[[Engine | None], None]
"""Called with None once the engine has failed."""
Deliver = Callable[[list[Event], EngineStats], None]


class EngineFailedError(Exception):
    """A step raised an exception: the engine has stopped, and its process is about to exit."""


class EngineLoop:
    """Creates an engine on a thread, runs its steps and commands there, and closes it there.

    Events are passed to the asyncio loop. Commands run between two steps, in the order in which
    they were submitted. The queue of commands is bounded by its callers: a few per open stream, and
    open streams are bounded.
    """

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        on_failed: Callable[[BaseException], None],
        cores: Sequence[int] = (),
        clock: Callable[[], float] = time.monotonic,
        nice: int = 0,
        check: Callable[[Engine], None] | None = None,
    ) -> None:
        """Prepare the thread.

        Args:
            make_engine: called on the thread; the engine is warmed up, used and closed there.
            on_failed: called on the asyncio loop if a step, or the handler of its events, raises;
                the engine is not stepped any more after a failed step.
            cores: to which the thread and the compute threads that it starts are bound; empty: any.
                The process's other threads are not bound.
            clock: of `busy_since`.
            nice: added to the niceness of the same threads.
            check: called on the thread once the engine is warm; `start` raises its exceptions.
        """
        self._make_engine = make_engine
        self._deliver: Deliver | None = None
        self._on_failed = on_failed
        self._cores = cores
        self._nice = nice
        self._check = check
        self._commands: SimpleQueue[Command | None] = SimpleQueue()
        self._ahead = threading.Semaphore(MAX_STEPS_AHEAD)
        self.steps = 0
        """Completed rounds, each of commands and one step. Written by the engine's thread."""
        self.steps_delivered = 0
        """Completed rounds whose events and stats were delivered. Written by the asyncio loop."""
        self.busy_since: float | None = None
        """Time at which the running step or command began, or the engine failed; None: it is
        waiting. Written by the engine's thread.
        """
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._made: asyncio.Future[Engine] = self._loop.create_future()
        self._thread = scoped_thread(self._run, "engine")

    async def start(self) -> Engine:
        """Create the engine and return it. Callers may use only its thread-safe methods.

        Raises:
            StartupError: and any other exception from creating it. Nothing is left running then.
        """
        self._thread.start()
        try:
            return await self._made
        except BaseException:
            await self.stop()
            raise

    def deliver_to(self, deliver: Deliver) -> None:
        """Call `deliver` on the asyncio loop with the events of each future step."""
        self._deliver = deliver

    async def stop(self) -> None:
        """Close the engine after the step in progress; commands submitted before are still run."""
        self._commands.put(None)
        await asyncio.to_thread(self._thread.join)

    async def call(self, command: Callable[[Engine], T]) -> T:
        """Run a command on the engine's thread; return its result or raise its exception.

        Cancelling the caller does not withdraw the command.

        Raises:
            EngineFailedError: the engine failed before the command was run.
        """
        future: asyncio.Future[T] = self._loop.create_future()

        def run(engine: Engine | None) -> None:
            try:
                if engine is None:
                    raise EngineFailedError
                result = command(engine)
            except Exception as error:  # noqa: BLE001 - it is the caller's, and reaches it
                self._loop.call_soon_threadsafe(_fail, future, error)
            else:
                self._loop.call_soon_threadsafe(_fulfil, future, result)

        self._commands.put(run)
        return await future

    def post(self, command: Callable[[Engine], None]) -> None:
        """Run a command on the engine's thread, unless the engine failed, without waiting."""
        self._commands.put(lambda engine: None if engine is None else command(engine))

    def _run(self) -> None:
        try:
            if self._cores:
                os.sched_setaffinity(0, self._cores)  # 0: this thread
            add_niceness(self._nice)
            engine = self._make_engine()
        except BaseException as error:  # noqa: BLE001 - it is the caller's of `start`
            self._loop.call_soon_threadsafe(_fail, self._made, error)
            return
        try:
            self._serve(engine)
        finally:
            engine.close_engine()

    def _serve(self, engine: Engine) -> None:
        """Warm up the engine, check it, and step it until the loop is stopped."""
        try:
            engine.warm_up()
            if self._check is not None:
                self._check(engine)
        except BaseException as error:  # noqa: BLE001 - it is the caller's of `start`
            self._loop.call_soon_threadsafe(_fail, self._made, error)
            return
        self._loop.call_soon_threadsafe(_fulfil, self._made, engine)
        try:
            while self._run_commands(engine):
                self.busy_since = self._clock()
                events = engine.step() if engine.has_work() else []
                self.busy_since = None
                self._ahead.acquire()
                self.steps += 1
                stats = engine.stats()
                self._loop.call_soon_threadsafe(self._deliver_step, self.steps, events, stats)
        except BaseException as error:  # noqa: BLE001 - a failed engine ends the process
            self.busy_since = self._clock()
            self._loop.call_soon_threadsafe(self._on_failed, error)
            # Other threads may be copying blocks until they are stopped.
            while (command := self._commands.get()) is not None:
                command(None)

    def _deliver_step(self, number: int, events: list[Event], stats: EngineStats) -> None:
        self._ahead.release()
        self.steps_delivered = number
        if self._deliver is None:
            return  # no sequence has been added yet
        try:
            self._deliver(events, stats)
        except Exception as error:  # noqa: BLE001 - what is lost would be waited for in vain
            self._on_failed(error)

    def _run_commands(self, engine: Engine) -> bool:
        """Run pending commands, or wait for work; return False when the loop must end."""
        idle = not engine.has_work()
        held_until = time.monotonic() + engine.hold_seconds()
        while True:
            held = engine.hold_seconds() and not idle
            if not (idle or held or not self._commands.empty()):
                return True
            left = max(0.0, held_until - time.monotonic())
            try:
                command = self._commands.get(timeout=IDLE_SECONDS if idle else left)
            except Empty:
                if held:
                    return True
                idle = not engine.has_work()
                continue
            if command is None:
                return False
            self.busy_since = self._clock()
            command(engine)
            self.busy_since = None
            idle = False


def _fulfil(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
