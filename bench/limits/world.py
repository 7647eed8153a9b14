"""Simulated time and network: equal seeds give equal runs."""

import random
from collections import defaultdict
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

LATENCY_SECONDS = (0.0002, 0.0015)
"""Latency of a message between processes: uniform."""


class World:
    """Calls functions at their times, and delivers messages in order between two processes."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.draw = random.Random(seed)
        self.messages = 0
        """Number of messages sent so far."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._last: defaultdict[tuple[str, str], float] = defaultdict(float)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function at a time, or now if the time has passed."""
        heappush(self._due, (max(when, self.now), next(self._numbers), call))

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function periodically."""

        def again() -> None:
            call()
            self.at(self.now + seconds, again)

        self.at(self.now + self.draw.uniform(0, seconds), again)

    def send(self, sender: str, receiver: str, deliver: Callable[[], None]) -> None:
        """Deliver a message a moment later, after those sent before it."""
        self.messages += 1
        when = max(self.now + self.draw.uniform(*LATENCY_SECONDS), self._last[sender, receiver])
        self._last[sender, receiver] = when
        self.at(when, deliver)

    def run(self, until: float) -> None:
        """Advance the time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, call = heappop(self._due)
            call()
        self.now = until
