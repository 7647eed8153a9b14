"""How urgent batches are, in a loop with a rate that follows their steps."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.batches.urgency import (
    LAST,
    SHARES,
    BatchTime,
    hold_seconds,
    is_late,
    next_step,
    urgent_lines,
)

DAY = 86_400.0
LOOK = DAY / 1000


def time_of(left: float, held: float = DAY) -> BatchTime:
    return BatchTime(DAY, left, held)


@pytest.mark.parametrize(
    ("step", "needed", "left", "after"),
    [
        (0, 100.0, 1000.0, 0),
        (0, 800.0, 1000.0, 1),
        (2, 800.0, 1000.0, 3),
        (LAST, 2000.0, 1000.0, LAST),
        (2, 799.0, 1000.0, 2),
        (2, 351.0, 1000.0, 2),
        (2, 349.0, 1000.0, 1),
        (0, 1.0, 1000.0, 0),
        (1, 1.0, 1000.0, 1),
        (1, 10.0, -1.0, 2),  # its deadline has passed, and no one has ended it yet
        (0, None, DAY, 1),
    ],
)
def test_a_step_follows_from_pressure(
    step: int, needed: float | None, left: float, after: int
) -> None:
    assert next_step(step, time_of(left), needed) == after


def test_a_step_is_held_until_the_rate_shows_it() -> None:
    hold = hold_seconds(DAY)
    assert next_step(1, time_of(1000.0, hold - 1), 5000.0) == 1
    assert next_step(1, time_of(1000.0, hold), 5000.0) == 2
    assert not is_late(LAST, time_of(1000.0, hold), 5000.0)
    assert is_late(LAST, time_of(1000.0, 3 * hold), 5000.0)
    assert not is_late(LAST - 1, time_of(1000.0), 5000.0)
    assert not is_late(LAST, time_of(1000.0), 999.0)
    assert not is_late(LAST, time_of(1000.0), None)


def test_a_share_of_the_running_lines_is_urgent() -> None:
    assert [urgent_lines(64, step) for step in range(LAST + 1)] == [0, 8, 16, 32, 64]
    assert [urgent_lines(3, step) for step in range(LAST + 1)] == [0, 1, 1, 2, 3]
    assert {urgent_lines(0, step) for step in range(LAST + 1)} == {0}


class Loop:
    """A batch whose lines end at a rate for idle room, and one for its share."""

    def __init__(self, lines: float, idle: float, share: float) -> None:
        self.lines, self.idle, self.share = lines, idle, share
        self.now = self.since = 0.0
        self.steps = [0]
        self.said: tuple[float, float] | None = None
        """When it was said to be late, and the end that was predicted."""

    def run(self, until: float) -> None:
        while self.lines > 0 and self.now < until:
            step = self.steps[-1]
            rate = self.idle + SHARES[step] * self.share
            needed = self.lines / rate if rate else None
            time = BatchTime(DAY, DAY - self.now, self.now - self.since)
            if self.said is None and is_late(step, time, needed):
                assert needed is not None
                self.said = self.now, self.now + needed
            after = next_step(step, time, needed)
            if after != step:
                self.steps.append(after)
                self.since = self.now
            self.lines -= rate * LOOK
            self.now += LOOK


_rates = st.floats(0.0, 5.0), st.floats(0.1, 5.0)


@given(*_rates, st.floats(0.05, 0.9))
def test_what_fits_ends_in_time(idle: float, share: float, load: float) -> None:
    loop = Loop(load * DAY * (idle + share), idle, share)
    loop.run(math.inf)
    assert loop.now <= DAY
    assert loop.said is None


@given(*_rates, st.floats(1.1, 5.0))
def test_what_does_not_fit_is_said_early_and_exactly(
    idle: float, share: float, load: float
) -> None:
    loop = Loop(load * DAY * (idle + share), idle, share)
    loop.run(math.inf)
    assert loop.steps == [*range(LAST + 1)]
    assert loop.said is not None
    at, end = loop.said
    assert at <= DAY - 2 * 3600
    assert end - DAY == pytest.approx(loop.now - DAY, rel=0.01, abs=2 * LOOK)


@given(*_rates, st.floats(0.05, 5.0))
def test_steps_do_not_swing(idle: float, share: float, load: float) -> None:
    """Steps rise and then fall, where rates stay."""
    loop = Loop(load * DAY * (idle + share), idle, share)
    loop.run(DAY)
    turns = sum(
        (b - a) * (c - b) < 0
        for a, b, c in zip(loop.steps, loop.steps[1:], loop.steps[2:], strict=False)
    )
    assert turns <= 1
