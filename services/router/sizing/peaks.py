"""The highest value within a window of time."""

import math
from collections import deque


class Peaks:
    """The highest of the values within the last seconds, one entry per second at most.

    Args:
        seconds: the window.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._values: deque[tuple[int, float]] = deque()
        """By second; each higher than all later ones."""

    def add(self, value: float, now: float) -> None:
        """Add the value at a time; time never decreases."""
        values, second = self._values, math.floor(now)
        while values and values[-1][1] <= value:
            values.pop()
        if not values or values[-1][0] != second:
            values.append((second, value))

    def highest(self, now: float) -> float:
        """Return the highest value within the window; 0 if it has none."""
        values, first = self._values, math.floor(now - self._seconds)
        while values and values[0][0] < first:
            values.popleft()
        return values[0][1] if values else 0.0
