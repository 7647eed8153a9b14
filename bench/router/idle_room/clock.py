"""A clock that jumps from event to event."""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """Events in the order of their times; equal ones in the order in which they came."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, when: float, event: Callable[[], None]) -> None:
        """Have something called at a time."""
        heapq.heappush(self._events, (max(when, self.now), next(self._numbers), event))

    def run(self, until: float) -> None:
        """Call all events up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until
