"""Simulated time."""

from collections.abc import Callable
from heapq import heappop, heappush


class EventLoop:
    """Calls functions at their times; those of one moment in the order in which they were given."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._given = 0
        self.stopped = False
        """Whether `stop` was called."""

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Call a function at a time, or now if that has passed."""
        self._given += 1
        heappush(self._due, (max(when, self.now), self._given, call, arguments))

    def run(self) -> None:
        """Let time pass until nothing is due any more, or `stop` is called."""
        due = self._due
        while due and not self.stopped:
            self.now, _, call, arguments = heappop(due)
            call(*arguments)

    def stop(self) -> None:
        """Return from `run` after the function that runs now."""
        self.stopped = True
