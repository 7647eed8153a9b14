"""Requests for which no worker is known wait here, bounded, until a suitable one appears.

Requests that wait for busy workers wait in a router, which knows their load.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from baton.errors import BatonError, Reason
from baton.settings import FrontendLimits
from baton.telemetry.logs import get_logger
from services.frontend.metrics import WAITING, WORKER_WAIT

_WOKEN_PER_TURN = 32
"""Most requests that continue in one turn of the event loop, so that others get turns between."""
_RETRY_SECONDS = 1.0

log = get_logger(__name__)


class WorkerWait:
    """One request in the queue, from `WorkerWaitQueue.enter` until it is woken, fails or leaves."""

    __slots__ = (
        "began",
        "error",
        "model",
        "on_failed",
        "on_worker",
        "queue",
        "seconds",
        "size",
        "timer",
    )

    def __init__(
        self,
        queue: "WorkerWaitQueue",
        model: str,
        size: int,
        error: BatonError,
        on_worker: Callable[[], None],
        on_failed: Callable[[BatonError], None],
        began: float,
        most: float | None,
    ) -> None:
        self.queue: WorkerWaitQueue | None = queue
        """None once it has left."""
        self.model = model
        self.size = size
        self.error = error
        self.on_worker = on_worker
        self.on_failed = on_failed
        self.began = began
        self.seconds = queue.longest(model)
        if most is not None:
            self.seconds = min(self.seconds, most)
        self.timer = queue.loop.call_at(began + self.seconds, self._too_long)

    def leave(self) -> None:
        """Stop waiting. Idempotent."""
        if self.queue is not None:
            self.queue.remove(self, "left")

    def _too_long(self) -> None:
        if self.queue is not None:
            self.queue.remove(self, "timed_out")
            self.on_failed(_failure(self.error, f"none appeared within {self.seconds:g} s"))


class WorkerWaitQueue:
    """Holds the requests that wait for a worker, by the model that they name.

    The only place where requests wait for a worker to appear: new ones, and streams whose worker
    was lost. Lives on the event loop. Bounded in number and in bytes; a request fails with the
    reason that it could not run, immediately if the queue is full, or after
    `wait_for_worker_seconds`, or after `start_seconds` if a worker is to be started for it.

    Args:
        limits: bounds.
        start_seconds: longest wait for a worker that is to be started.
        loop: the clock; by default the running loop.
    """

    def __init__(
        self,
        limits: FrontendLimits,
        start_seconds: float = 0.0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = loop or asyncio.get_running_loop()
        self._start_seconds = start_seconds
        self.is_starting: Callable[[str], bool] = lambda _: False
        """Returns whether a model is kept and has no worker, so that one is to be started."""
        self._limits = limits
        self._waiting: dict[str, dict[WorkerWait, None]] = {}
        """Waiting requests by model, the oldest first."""
        self._woken: deque[WorkerWait] = deque()
        """Woken requests, which continue within the next turns of the loop."""
        self._count = self._bytes = 0
        self.changes = 0
        """Number of calls of `wake`."""
        self._turn: asyncio.Handle | None = None

    def __len__(self) -> int:
        return self._count

    def waits_for(self, model: str) -> bool:
        """Return whether a request waits for a worker of a model."""
        return model in self._waiting

    def longest(self, model: str) -> float:
        """Return the seconds that a request for a model may wait."""
        seconds = self._limits.wait_for_worker_seconds
        return max(seconds, self._start_seconds) if self.is_starting(model) else seconds

    def enter(
        self,
        model: str,
        size: int,
        error: BatonError,
        on_worker: Callable[[], None],
        on_failed: Callable[[BatonError], None],
        changes: int,
        began: float | None = None,
        most: float | None = None,
    ) -> WorkerWait:
        """Wait for a worker. Exactly one of the callbacks is called, later, unless it leaves.

        Args:
            model: the name that the request gives.
            size: approximate bytes that it holds.
            error: why it cannot run.
            on_worker: called when a worker may be available.
            on_failed: called with `error`, to which the time waited is added.
            changes: `self.changes` from before the search for a worker. If it has changed since,
                the wait ends immediately: a worker may have been missed.
            began: when its wait began, in the loop's time, if it waited before; None: now.
            most: seconds that it may wait at most; None: `longest`.

        Raises:
            BatonError: `error`, with the limit that is reached.
        """
        limits = self._limits
        if self._count >= limits.max_waiting:
            raise _failure(
                error, f"{self._count} requests already wait for a worker (limits.max_waiting)"
            )
        if self._bytes + size > limits.max_waiting_bytes:
            raise _failure(error, "waiting requests have too many bytes (limits.max_waiting_bytes)")
        since = self.loop.time() if began is None else began
        entry = WorkerWait(self, model, size, error, on_worker, on_failed, since, most)
        if changes != self.changes:
            self._woken.append(entry)
            self._turn_soon()
        else:
            waiting = self._waiting.setdefault(model, {})
            if not waiting and began is None:
                reason = error.reason.name
                log.warning("request.wait.began", model=model, reason=reason, error=error.message)
            waiting[entry] = None
        self._count += 1
        self._bytes += size
        WAITING.set(self._count)
        return entry

    def expects(self, model: str, error: BatonError, seconds: float) -> bool:
        """Return whether a model is expected within some seconds: a worker of it starts, or its
        tokenizer loads.

        Args:
            model: its name.
            error: why it does not answer now.
            seconds: from now.
        """
        coming = error.reason is Reason.MODEL_LOADING or self.is_starting(model)
        return coming and seconds > 0

    async def wait(
        self, model: str, size: int, error: BatonError, most: float | None = None
    ) -> None:
        """Return once a worker may be available; arguments and errors as for `enter`.

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
            most=most,
        )
        try:
            await ended
        finally:
            entry.leave()

    def wake(self, can_serve: Callable[[str], bool]) -> None:
        """Wake requests, in the order of arrival, if `can_serve` their model."""
        self.changes += 1
        for model in [model for model in self._waiting if can_serve(model)]:
            entries = self._waiting.pop(model)
            self._woken += entries
            seconds = self.loop.time() - next(iter(entries)).began
            count, longest = len(entries), round(seconds, 3)
            log.info("request.wait.ended", model=model, requests=count, longest_seconds=longest)
        self._turn_soon()

    def ask_again(self) -> None:
        """Wake the request that waits for longest of each model whose worker is to be started.

        It asks a router again: a pool is started only while requests come for it, and starting may
        take longer than routers remember one.
        """
        for model in [model for model in self._waiting if self.is_starting(model)]:
            entries = self._waiting[model]
            oldest = min(entries, key=lambda one: one.began)
            del entries[oldest]
            if not entries:
                del self._waiting[model]
            self._woken.append(oldest)
        self._turn_soon()

    def fail_all(self, error: BatonError) -> None:
        """Fail every waiting request with an error."""
        for entry in [*self._woken, *(one for some in self._waiting.values() for one in some)]:
            if entry.queue is not None:
                self.remove(entry, "left")
                entry.on_failed(error)

    def remove(self, entry: WorkerWait, outcome: str) -> None:
        """Remove a request, which must be in the queue. For `WorkerWait`."""
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
