"""Loads that change over time."""

import numpy as np
import pytest

from simulator.traces.curve import Burst, LoadCurve, TimeSpan, follow_curve, repeat
from simulator.traces.trace import Trace


def trace(requests: int = 10_000) -> Trace:
    return Trace(
        np.linspace(0.0, 100.0, requests),
        list(range(1, requests + 1)),
        [1] * requests,
        [(number,) for number in range(requests)],
        [""] * requests,
        requests,
    )


def counts(times: np.ndarray, seconds: float, parts: int) -> list[int]:
    return np.histogram(times, parts, (0.0, seconds))[0].tolist()


def test_a_day_has_its_peak_in_the_middle() -> None:
    followed = follow_curve(trace(), LoadCurve(1_000.0, peak=7.0), 0)
    assert followed.prompt_tokens == trace().prompt_tokens
    assert (np.diff(followed.times) >= 0).all()
    parts = counts(followed.times, 1_000.0, 101)
    # In ten seconds of a thousand, 1 of 4 on average at the ends, 7 of 4 in the middle.
    assert parts[0] < 60
    assert parts[-1] < 60
    assert 130 < parts[50] < 220


def test_quiet_times_have_no_requests_and_bursts_have_more() -> None:
    curve = LoadCurve(1_000.0, quiet=(TimeSpan(500, 700),), bursts=(Burst(100, 200, 4.0),))
    parts = counts(follow_curve(trace(), curve, 0).times, 1_000.0, 10)
    assert parts[5] == parts[6] == 0
    assert 3.5 < parts[1] / parts[0] < 4.5


def test_equal_seeds_give_equal_times() -> None:
    curve = LoadCurve(100.0, peak=2.0)
    one, other = (follow_curve(trace(50), curve, seed).times for seed in (3, 3))
    assert (one == other).all()
    assert (one != follow_curve(trace(50), curve, 4).times).any()


def test_a_curve_without_requests_is_refused() -> None:
    with pytest.raises(ValueError, match="no time with requests"):
        follow_curve(trace(5), LoadCurve(10.0, quiet=(TimeSpan(0, 10),)), 0)


def test_a_repeated_trace_shares_no_blocks_with_itself() -> None:
    repeated = repeat(trace(4), 10)
    assert len(repeated) == 10
    assert repeated.prompt_tokens == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert len(set(repeated.chains)) == 10
    assert max(block for chain in repeated.chains for block in chain) < repeated.blocks
    assert (np.diff(repeated.times) >= 0).all()
