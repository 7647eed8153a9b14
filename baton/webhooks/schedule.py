"""When a delivery is attempted again: after growing, random delays."""

import random
from collections.abc import Callable

FIRST_SECONDS, LONGEST_SECONDS, FACTOR = 5.0, 4 * 3600.0, 4.0
SPREAD = 0.25
"""Delays are longer or shorter by up to this share: events that failed together, because their
receiver was away, do not come back together."""


def retry_delay(attempt: int, draw: Callable[[], float] = random.random) -> float:
    """Return the seconds until the next attempt: 5, 20, 80 and so on, up to four hours.

    Args:
        attempt: the one that failed, from 1.
        draw: returns a number from 0 to 1.
    """
    seconds = LONGEST_SECONDS
    if attempt < 16:
        seconds = min(FIRST_SECONDS * FACTOR ** (attempt - 1), LONGEST_SECONDS)
    return seconds * (1 - SPREAD + 2 * SPREAD * draw())
