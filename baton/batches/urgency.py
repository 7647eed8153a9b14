"""How urgent a batch is, from what it has left and the time that is left. Pure: docs/adr/0107."""

import math
from typing import NamedTuple

SHARES = 0.0, 1 / 8, 1 / 4, 1 / 2, 1.0
"""Of a batch's running lines that have the class interactive, by step; 0 is the first step."""
LAST = len(SHARES) - 1
RAISE = 0.8
"""Pressure from which the step rises: a fifth of the time is kept for what is not foreseen."""
LOWER = 0.35
"""Pressure below which it falls, but not to the first one, which may have no room at all. A step at
most halves the share, so that pressure stays below `RAISE`: the steps do not swing."""
_HOLD = 1 / 100
"""Of the window: a step is kept so long, so that the rate shows what it brought. The last one is
reached after 4 of them, 58 minutes of a day."""
_SEEN = 3
"""Times that the last step is kept before a batch is called late."""


class BatchTime(NamedTuple):
    """The time that a batch has, in seconds."""

    window: float
    """From its creation to its deadline."""
    left: float
    """To its deadline."""
    held: float
    """Since its step last changed."""


def hold_seconds(window: float) -> float:
    """Return how long a step is kept at least."""
    return window * _HOLD


def next_step(step: int, time: BatchTime, needed: float | None) -> int:
    """Return the step of a batch from now on.

    Args:
        step: the current one.
        time: that it has.
        needed: predicted seconds until its last line ends; None: no line has ended yet.
    """
    if time.held < hold_seconds(time.window):
        return step
    pressure = math.inf
    if needed is not None and time.left > 0:
        pressure = needed / time.left
    if pressure >= RAISE:
        return min(step + 1, LAST)
    return step - 1 if pressure < LOWER and step > 1 else step


def is_late(step: int, time: BatchTime, needed: float | None) -> bool:
    """Return whether a batch will end after its deadline, whatever is done: it has the last step
    for so long that the rate shows it well."""
    if step < LAST or time.held < _SEEN * hold_seconds(time.window) or needed is None:
        return False
    return needed > time.left


def urgent_lines(running: int, step: int) -> int:
    """Return how many of a batch's running lines have the class interactive: one at least, if its
    step is not the first."""
    return math.ceil(running * SHARES[step])
