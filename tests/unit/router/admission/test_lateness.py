"""Predictions are put right by how late first tokens came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.admission.lateness import MAX_RATIO, Lateness


def after(*seen: tuple[float, float]) -> float:
    lateness = Lateness()
    for predicted, actual in seen:
        lateness.observe(predicted, actual)
    return lateness.factor


def test_nothing_is_put_right_before_anything_was_seen() -> None:
    assert after() == 1.0


def test_the_factor_comes_to_what_first_tokens_took() -> None:
    assert after(*[(0.5, 0.7)] * 1_000) == pytest.approx(1.4, abs=0.03)


def test_one_late_first_token_says_little() -> None:
    assert after(*[(0.5, 0.5)] * 100, (0.5, 2.0)) < 1.2


def test_first_tokens_that_come_sooner_change_nothing() -> None:
    assert after(*[(0.5, 0.2)] * 100) == 1.0


def test_where_they_scatter_most_are_in_time() -> None:
    draws = [0.8, 1.0, 1.2] * 300
    factor = after(*((0.5, 0.5 * draw) for draw in draws))
    assert sum(draw <= factor + 0.05 for draw in draws) / len(draws) > 0.95


def test_milliseconds_of_short_ones_do_not_count_for_long_ones() -> None:
    assert after(*[(0.01, 0.03), (1.0, 1.02)] * 300) < 1.1


def test_what_was_is_forgotten() -> None:
    assert after(*[(0.5, 1.5)] * 500, *[(0.5, 0.5)] * 2_000) == pytest.approx(1.0, abs=0.05)


SECONDS = st.floats(1e-4, 600)


@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=300))
def test_the_factor_is_bounded(seen: list[tuple[float, float]]) -> None:
    assert 1.0 <= after(*seen) <= MAX_RATIO


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=50), st.floats(0.01, 100))
def test_the_factor_has_no_unit(seen: list[tuple[float, float]], unit: float) -> None:
    scaled = [(predicted * unit, actual * unit) for predicted, actual in seen]
    assert after(*scaled) == pytest.approx(after(*seen), rel=1e-6)


def test_one_of_sixteen_that_would_be_late_by_the_ratio_alone_goes() -> None:
    lateness = Lateness()
    assert lateness.allows(1.0, 1.0)
    for _ in range(1_000):
        lateness.observe(0.5, 1.0)
    assert lateness.allows(0.5, 1.0)
    assert sum(lateness.allows(0.5, 0.7) for _ in range(160)) == 10
    assert not any(lateness.allows(0.8, 0.7) for _ in range(160)), "late by the plan itself"


def test_a_ratio_that_is_too_high_is_put_right_where_all_requests_are_alike() -> None:
    lateness = Lateness()
    for _ in range(1_000):
        lateness.observe(0.5, 1.5)
    accepted = 0
    for _ in range(20_000):
        if lateness.allows(0.5, 0.9):
            accepted += 1
            lateness.observe(0.5, 0.55)
    assert accepted > 10_000
