"""A running process, as seen by its composition."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from baton.ops.checks import DRAIN, START, Liveness, Readiness
from baton.process.background import cancel_all
from baton.telemetry import logs

log = logs.get_logger(__name__)

T = TypeVar("T")


@dataclass
class Process:
    """Passed to `compose`: the identity of the process, and where to register parts, tasks and the
    drain."""

    name: str
    instance_id: str
    incarnation: str
    """Random per start; distinguishes this process from the previous one with the same ID."""
    stack: AsyncExitStack
    """Contexts that `compose` enters here are left in reverse order at shutdown, after the
    drain."""
    stopping: asyncio.Event
    """Set when the process starts to shut down."""
    metrics_address: str = ""
    """`host:port` of /metrics."""
    liveness: Liveness = field(default_factory=Liveness)
    """State reported by /livez."""
    readiness: Readiness = field(default_factory=Readiness)
    """State reported by /readyz, and by the gRPC servers that follow it."""
    started: bool = field(default=False, init=False)
    """Whether `compose` has returned."""
    failure: str | None = field(default=None, init=False)
    """Why the process exits with a failure; None if it does not."""
    _drains: list[Callable[[], Awaitable[None]]] = field(default_factory=list, init=False)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    def on_drain(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Await `callback` at the first signal; callbacks run in order, within drain_seconds."""
        self._drains.append(callback)

    def die(self, reason: str) -> None:
        """Handle a permanent failure of a part: log it, unwind without a drain and exit with code
        1."""
        if self.failure is None:
            self.failure = reason
            log.error("process.service.failed", reason=reason)
            self.stopping.set()

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run a background task until shutdown, which cancels and awaits it.

        A task that `compose` spawns has a position in the stack: it ends after the parts that were
        entered later and before those that were entered earlier. One spawned afterwards ends before
        the stack unwinds. An exception in it ends the process.
        """
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        if self.started:
            self._tasks.add(task)
        else:
            self.stack.push_async_callback(cancel_all, [task])
        return task

    def ready_when(self, part: str, until: Coroutine[Any, Any, None]) -> None:
        """Count this part as ready once `until` returns."""

        async def wait() -> None:
            await until
            self.readiness.done(part)

        self.spawn(wait(), f"{part} ready")

    def composed(self) -> None:
        """Record that `compose` has returned. Called by the lifecycle."""
        self.started = True
        self.readiness.done(START)

    async def drain(self, seconds: float) -> None:
        """Become not ready, and run the drain callbacks; unfinished ones are cancelled at the time
        limit.

        Called by the lifecycle.
        """
        self.readiness.wait_for(DRAIN, "the process is stopping")
        try:
            async with asyncio.timeout(seconds):
                for callback in self._drains:
                    await callback()
        except TimeoutError:
            log.warning("process.drain.timed_out", seconds=seconds)

    async def end_tasks(self) -> None:
        """Cancel and await the tasks spawned after composing. Called by the lifecycle."""
        await cancel_all(self._tasks)  # `_ended` reports their errors

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("process.task.failed", task=task.get_name(), exc_info=error)
            self.die(f"task {task.get_name()} failed: {error}")
