"""Attempts are spread over a day by delays that grow and differ."""

from itertools import accumulate, count, takewhile

import pytest

from baton.webhooks.schedule import retry_delay

DAY = 24 * 3600.0
MIDDLE = [5, 20, 80, 320, 1280, 5120, *[14400] * 4]
"""Of each delay, in seconds."""


def attempts(draw: float) -> list[float]:
    """Return the seconds after the first attempt of those that follow within a day."""
    delays = (retry_delay(attempt, lambda: draw) for attempt in count(1))
    return list(takewhile(lambda at: at <= DAY, accumulate(delays)))


def test_delays_grow_to_four_hours() -> None:
    assert [retry_delay(attempt, lambda: 0.5) for attempt in range(1, 11)] == MIDDLE
    assert retry_delay(10_000, lambda: 0.5) == 14400


@pytest.mark.parametrize(("draw", "share"), [(0.0, 0.75), (1.0, 1.25)])
def test_delays_differ_by_a_quarter(draw: float, share: float) -> None:
    for attempt, middle in enumerate(MIDDLE, 1):
        assert retry_delay(attempt, lambda: draw) == pytest.approx(middle * share)


def test_receivers_that_failed_together_are_not_attempted_together() -> None:
    delays = sorted(retry_delay(8) for _ in range(1000))
    assert delays[100] < 14400 * 0.85 < 14400 * 1.15 < delays[-100]


def test_a_day_has_attempts_at_its_begin_and_at_its_end() -> None:
    for draw in (0.0, 0.25, 0.5, 0.75, 1.0):
        found = attempts(draw)
        assert 9 <= len(found) <= 13
        assert found[0] < 10
        assert found[-1] > DAY - 1.25 * 14400
