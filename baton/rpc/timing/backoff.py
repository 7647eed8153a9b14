"""Jittered exponential back-off between attempts."""

import random
from collections.abc import Callable


class Backoff:
    """Delays that double from attempt to attempt, each with jitter. Owned by one retry loop.

    Args:
        first: seconds before the first retry, before jitter.
        last: the longest delay in seconds, before jitter; equal to `first` for a constant one.
        chance: returns a number in [0, 1); for tests.
    """

    def __init__(
        self, first: float, last: float, chance: Callable[[], float] = random.random
    ) -> None:
        self._first = first
        self._last = last
        self._chance = chance
        self._delay = first

    def next(self) -> float:
        """Return the seconds to wait before the next attempt: 0.5 to 1.5 times the delay.

        Thus peers that lost the same server at the same moment reconnect spread over time.
        """
        delay, self._delay = self._delay, min(2 * self._delay, self._last)
        return delay * (0.5 + self._chance())

    def reset(self) -> None:
        """Start over from the first delay: an attempt succeeded."""
        self._delay = self._first
