"""Simulated time."""

from collections.abc import Callable
from heapq import heappop, heappush


class EventLoop:
    """Calls functions at their times; simultaneous ones in the order in which they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._given = 0
        self.stopped = False
        """Whether `stop` was called."""

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Call a function at a time, or now if that is in the past."""
        self._given += 1
        heappush(self._due, (max(when, self.now), self._given, call, arguments))

    def run(self) -> None:
        """Advance time until no calls are scheduled, or `stop` is called."""
        due = self._due
        while due and not self.stopped:
            self.now, _, call, arguments = heappop(due)
            call(*arguments)

    def stop(self) -> None:
        """Return from `run` after the current function."""
        self.stopped = True
