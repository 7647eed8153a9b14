"""WorkerRates come from reports; what is unknown is estimated from peers, then from constants."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.state.instances import LoadReport
from services.router.state.rates import (
    DECODE_STEP_SECONDS,
    LOCAL_BYTES_PER_SECOND,
    PREFILL_TOKENS_PER_SECOND,
    RateEstimator,
)

LAYOUT, OTHER = b"a" * 16, b"b" * 16


def test_nothing_known_gives_the_priors() -> None:
    rates = RateEstimator().rates("w", LAYOUT)
    assert rates.prefill_tokens_per_second == PREFILL_TOKENS_PER_SECOND
    assert rates.decode_step_seconds == DECODE_STEP_SECONDS
    assert rates.remote_bytes_per_second < rates.local_bytes_per_second


def test_unknown_rates_are_those_of_peers_of_the_same_layout_only() -> None:
    estimator = RateEstimator()
    for worker, layout, speed in (("a", LAYOUT, 100), ("b", LAYOUT, 300), ("c", OTHER, 9_000)):
        estimator.observe(worker, layout, LoadReport("w", prefill_tokens_per_second=speed))
    assert estimator.rates("new", LAYOUT).prefill_tokens_per_second == 200
    assert estimator.rates("new", OTHER).prefill_tokens_per_second == 9_000


def test_a_jump_moves_a_known_rate_halfway_and_zero_moves_nothing() -> None:
    estimator = RateEstimator()
    estimator.observe("w", LAYOUT, LoadReport("w", decode_step_seconds=0.1))
    estimator.observe("w", LAYOUT, LoadReport("w", decode_step_seconds=0.3))
    assert estimator.rates("w", LAYOUT).decode_step_seconds == pytest.approx(0.2)
    estimator.observe("w", LAYOUT, LoadReport("w"))
    assert estimator.rates("w", LAYOUT).decode_step_seconds == pytest.approx(0.2)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -5.0])
def test_numbers_that_are_no_rate_are_not_learned(nonsense: float) -> None:
    estimator = RateEstimator()
    estimator.observe("w", LAYOUT, LoadReport("w", prefill_tokens_per_second=nonsense))
    assert estimator.rates("w", LAYOUT).prefill_tokens_per_second == PREFILL_TOKENS_PER_SECOND


def test_remote_is_never_as_fast_as_shared_memory() -> None:
    estimator = RateEstimator()
    estimator.observe("w", LAYOUT, LoadReport("w", fetch_bytes_per_second=20e9))
    rates = estimator.rates("w", LAYOUT)
    assert rates.local_bytes_per_second == 20e9
    assert rates.remote_bytes_per_second < LOCAL_BYTES_PER_SECOND


def test_a_removed_worker_teaches_nothing() -> None:
    estimator = RateEstimator()
    estimator.observe("w", LAYOUT, LoadReport("w", prefill_tokens_per_second=7))
    estimator.remove_worker("w")
    assert estimator.rates("w", LAYOUT).prefill_tokens_per_second == PREFILL_TOKENS_PER_SECOND


def test_a_worker_with_a_new_layout_starts_afresh() -> None:
    estimator = RateEstimator()
    estimator.observe("w", LAYOUT, LoadReport("w", prefill_tokens_per_second=7))
    estimator.observe("w", OTHER, LoadReport("w", prefill_tokens_per_second=100))
    assert estimator.rates("w", OTHER).prefill_tokens_per_second == 100


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from([LAYOUT, OTHER, None]),
            st.sampled_from([0.0, 1.0, 2.0, 7.0]),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_what_peers_know_is_the_median_of_what_each_knows(
    history: list[tuple[str, bytes | None, float, bool]],
) -> None:
    estimator = RateEstimator()
    layouts: dict[str, bytes] = {}
    for name, layout, speed, asked in [*history, ("e", None, 0.0, True)]:
        if layout is None:
            estimator.remove_worker(name)
            layouts.pop(name, None)
        else:
            report = LoadReport(name, prefill_tokens_per_second=speed, decode_step_seconds=speed)
            estimator.observe(name, layout, report)
            layouts[name] = layout
        if asked:  # or else no order is kept
            _check_medians(estimator, layouts)


def _check_medians(estimator: RateEstimator, layouts: dict[str, bytes]) -> None:
    for layout in (LAYOUT, OTHER):
        own = {n: estimator.rates(n, layout) for n, of in layouts.items() if of == layout}
        known = [r.decode_step_seconds for r in own.values() if r.decode_step_seconds >= 1]
        expected = median(known) if known else DECODE_STEP_SECONDS
        assert estimator.rates("new", layout).decode_step_seconds == pytest.approx(expected)
