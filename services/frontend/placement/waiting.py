"""Requests for which no worker is known: they wait, bounded, until one that may take them appears.

What waits for workers that are there but busy waits in a router, which knows their load.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from baton.errors import BatonError
from baton.settings import FrontendLimits
from baton.telemetry.logs import get_logger
from services.frontend.metrics import WAITING, WORKER_WAIT

_WOKEN_PER_TURN = 32
"""Requests that go on in one turn of the event loop: others have theirs between."""
_RETRY_SECONDS = 1.0

log = get_logger(__name__)


class WorkerWait:
    """One request in the queue, from `WorkerWaitQueue.enter` until it is woken, fails or leaves."""

    __slots__ = ("began", "error", "model", "on_failed", "on_worker", "queue", "size", "timer")

    def __init__(
        self,
        queue: "WorkerWaitQueue",
        model: str,
        size: int,
        error: BatonError,
        on_worker: Callable[[], None],
        on_failed: Callable[[BatonError], None],
    ) -> None:
        self.queue: WorkerWaitQueue | None = queue
        """None once it has left."""
        self.model = model
        self.size = size
        self.error = error
        self.on_worker = on_worker
        self.on_failed = on_failed
        self.began = queue.loop.time()
        self.timer = queue.loop.call_later(queue.seconds, self._too_long)

    def leave(self) -> None:
        """Wait no longer. Idempotent."""
        if self.queue is not None:
            self.queue.remove(self, "left")

    def _too_long(self) -> None:
        if self.queue is not None:
            seconds = self.queue.seconds
            self.queue.remove(self, "timed_out")
            self.on_failed(_failure(self.error, f"none appeared within {seconds:g} s"))


class WorkerWaitQueue:
    """Holds the requests that wait for a worker, by the model that they name.

    The only place where requests wait for one to appear: new ones, and streams whose worker was
    lost. Lives on the event loop. Bounded in number and in bytes; a request that finds it full
    fails at once, as does one that has waited for `wait_for_worker_seconds`, with why it could not
    run.
    """

    def __init__(
        self, limits: FrontendLimits, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Hold as many as `limits` say; `loop` is the clock, by default the running loop."""
        self.loop = loop or asyncio.get_running_loop()
        self.seconds = limits.wait_for_worker_seconds
        """The longest wait."""
        self._limits = limits
        self._waiting: dict[str, dict[WorkerWait, None]] = {}
        """By model, the oldest first."""
        self._woken: deque[WorkerWait] = deque()
        """They go on within the next turns of the loop."""
        self._count = self._bytes = 0
        self.changes = 0
        """Counts calls of `wake`."""
        self._turn: asyncio.Handle | None = None

    def __len__(self) -> int:
        return self._count

    def enter(
        self,
        model: str,
        size: int,
        error: BatonError,
        on_worker: Callable[[], None],
        on_failed: Callable[[BatonError], None],
        changes: int,
    ) -> WorkerWait:
        """Wait for a worker. Exactly one of the callbacks is called, later, unless it leaves.

        Args:
            model: the name that the request gives.
            size: bytes that it holds, about.
            error: why it cannot run.
            on_worker: a worker may take it now.
            on_failed: is given `error`, with how long it waited.
            changes: `self.changes` from before a worker was looked for. If one may have appeared
                since, nothing is waited for: it would be missed.

        Raises:
            BatonError: `error`, with which limit is reached.
        """
        limits = self._limits
        if self._count >= limits.max_waiting:
            raise _failure(
                error, f"{self._count} requests already wait for a worker (limits.max_waiting)"
            )
        if self._bytes + size > limits.max_waiting_bytes:
            raise _failure(error, "waiting requests have too many bytes (limits.max_waiting_bytes)")
        entry = WorkerWait(self, model, size, error, on_worker, on_failed)
        if changes != self.changes:
            self._woken.append(entry)
            self._turn_soon()
        else:
            waiting = self._waiting.setdefault(model, {})
            if not waiting:
                reason = error.reason.name
                log.warning("request.wait.began", model=model, reason=reason, error=error.message)
            waiting[entry] = None
        self._count += 1
        self._bytes += size
        WAITING.set(self._count)
        return entry

    async def wait(self, model: str, size: int, error: BatonError) -> None:
        """Return once a worker may take a request; arguments and errors as of `enter`.

        Call it in the turn of the loop in which no worker was found.
        """
        ended: asyncio.Future[None] = self.loop.create_future()
        entry = self.enter(
            model,
            size,
            error,
            lambda: None if ended.done() else ended.set_result(None),
            lambda failure: None if ended.done() else ended.set_exception(failure),
            self.changes,
        )
        try:
            await ended
        finally:
            entry.leave()

    def wake(self, can_serve: Callable[[str], bool]) -> None:
        """Let requests go on, in the order in which they came, where `can_serve` their model."""
        self.changes += 1
        for model in [model for model in self._waiting if can_serve(model)]:
            entries = self._waiting.pop(model)
            self._woken += entries
            seconds = self.loop.time() - next(iter(entries)).began
            count, longest = len(entries), round(seconds, 3)
            log.info("request.wait.ended", model=model, requests=count, longest_seconds=longest)
        self._turn_soon()

    def fail_all(self, error: BatonError) -> None:
        """Let every request that waits fail with an error."""
        for entry in [*self._woken, *(one for some in self._waiting.values() for one in some)]:
            if entry.queue is not None:
                self.remove(entry, "left")
                entry.on_failed(error)

    def remove(self, entry: WorkerWait, outcome: str) -> None:
        """Take a request out, which is in it. For `WorkerWait`."""
        entry.queue = None
        entry.timer.cancel()
        waiting = self._waiting.get(entry.model)
        if waiting is not None:
            waiting.pop(entry, None)
            if not waiting:
                del self._waiting[entry.model]
        self._count -= 1
        self._bytes -= entry.size
        WAITING.set(self._count)
        WORKER_WAIT.labels(outcome).observe(self.loop.time() - entry.began)

    def _turn_soon(self) -> None:
        if self._woken and self._turn is None:
            self._turn = self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        left = _WOKEN_PER_TURN
        while self._woken and left:
            entry = self._woken.popleft()
            if entry.queue is not None:
                left -= 1
                self.remove(entry, "woken")
                entry.on_worker()
        self._turn_soon()


def _failure(error: BatonError, why: str) -> BatonError:
    return BatonError(
        error.reason,
        f"{error.message}: {why}",
        field=error.field,
        retry_after=error.retry_after or _RETRY_SECONDS,
    )
