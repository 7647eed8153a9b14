"""Which prefetch a store is asked for next, and when. Pure: no I/O, no clock.

A prefetch may be lost without harm, so none is retried: one that does not fit into the queue,
waited there for too long or is for a store that failed of late is dropped. Prefetches leave the
network to requests: few at a time, and a pause after each.
"""

from collections import deque
from heapq import heappop, heappush

from baton.settings import RouterPlacement
from services.router.replication.hot_prefixes import PrefetchTask


class PrefetchPacer:
    """A bounded queue of prefetches. One loop owns it.

    A prefetch keeps its place among those that run at a time until it has taken as long as its
    blocks may: two at a time take half of what a store was measured to fetch over gRPC.

    Args:
        settings: bounds and times of prefetches.
    """

    def __init__(self, settings: RouterPlacement) -> None:
        self._settings = settings
        self._queue: deque[tuple[float, PrefetchTask]] = deque()
        """With the time at which each was submitted."""
        self._running: list[tuple[PrefetchTask, float]] = []
        """With the time at which each began."""
        self._pauses: list[float] = []
        """Until when the places of prefetches that ended are kept: a heap."""
        self._cooling_down: dict[str, float] = {}
        """Until when, by store."""
        self.dropped = 0
        """Prefetches that were dropped since the start."""

    def submit(self, task: PrefetchTask, now: float) -> bool:
        """Queue a prefetch; return False where the queue is full and it was dropped."""
        if len(self._queue) >= self._settings.prefetch_queued:
            self.dropped += 1
            return False
        self._queue.append((now, task))
        return True

    def next(self, now: float) -> PrefetchTask | None:
        """Return a prefetch to begin now; None: there is none, or as many run as may.

        The caller says with `done` when it ended.
        """
        settings = self._settings
        while self._pauses and self._pauses[0] <= now:
            heappop(self._pauses)
        if len(self._running) + len(self._pauses) >= settings.prefetch_concurrent:
            return None
        self._cooling_down = {k: t for k, t in self._cooling_down.items() if t > now}
        while self._queue:
            submitted, task = self._queue.popleft()
            # What was hot then need not be now.
            is_stale = now - submitted > settings.prefetch_stale_seconds
            if is_stale or task.store_id in self._cooling_down:
                self.dropped += 1
                continue
            self._running.append((task, now))
            return task
        return None

    def done(self, task: PrefetchTask, blocks: int, now: float) -> None:
        """Say that a prefetch ended.

        Args:
            task: as `next` returned it.
            blocks: that the store has of it now; 0: it failed, and is left alone for a while.
            now: a monotonic clock, in seconds.
        """
        index = next(i for i, (running, _) in enumerate(self._running) if running is task)
        _, began = self._running.pop(index)
        settings = self._settings
        if not blocks:
            self._cooling_down[task.store_id] = now + settings.store_cooldown_seconds
        paced = began + blocks * task.block_bytes / settings.prefetch_bytes_per_second
        if paced > now:
            heappush(self._pauses, paced)

    def wait_seconds(self, now: float) -> float | None:
        """Return how long after `next` returned None it is of no use to call it again.

        None: until a prefetch is submitted or done.
        """
        if not self._queue or not self._pauses:
            return None
        return max(0.0, self._pauses[0] - now)
