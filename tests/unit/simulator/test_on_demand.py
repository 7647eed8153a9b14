"""Models that take turns, in simulated time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.on_demand.turns import MIN_STAY_SECONDS, PATIENCE_STAYS, TurnPhase
from simulator.config import ClusterConfig
from simulator.on_demand.fewest import fewest_swaps
from simulator.on_demand.rules import POLL_SECONDS, ProductionTurns, SwapAtOnce, TurnRule
from simulator.on_demand.run import TurnsOutcome, TurnsRun
from simulator.on_demand.workload import ModelRequest, zipf_requests
from tests.support.examples import examples

MODELS, START = 3, 5.0
STREAM_SECONDS = 20.0
"""More than the longest stream of these requests takes."""
NAMES = [str(number) for number in range(MODELS)]


def turns() -> ProductionTurns:
    rule = ProductionTurns(1)
    for name in NAMES:
        rule.add(name, TurnPhase.AWAY if name != "0" else TurnPhase.READY, 0.0)
    return rule


def run(requests: list[ModelRequest], rule: TurnRule | None = None) -> TurnsOutcome:
    config = ClusterConfig(workers=1)
    return TurnsRun(rule or turns(), requests, MODELS, START, config).run()


def arrivals(requests: list[ModelRequest]) -> list[list[float]]:
    return [[one.arrival for one in requests if one.model == model] for model in range(MODELS)]


def test_ten_minutes_take_few_swaps_more_than_the_fewest() -> None:
    requests = zipf_requests(MODELS, 0.25, 600.0, 60, seed=1)
    outcome = run(requests)
    assert outcome.failed == 0
    assert len(outcome.waits) == len(requests) > 100
    fewest = fewest_swaps(arrivals(requests), max(outcome.waits), START)
    assert 10 < outcome.swaps <= 1.3 * fewest


def test_none_waits_longer_than_two_starts_and_the_turns_before_its_own() -> None:
    requests = zipf_requests(MODELS, 0.5, 250.0, 60, seed=3)
    outcome = run(requests)
    turn = PATIENCE_STAYS * MIN_STAY_SECONDS + STREAM_SECONDS + 3 * POLL_SECONDS
    waited = 0
    for request, wait in zip(requests, outcome.waits, strict=True):
        if not wait:
            continue
        waited += 1
        ready = request.arrival + wait
        own = next(
            one for one in outcome.turns if one.model == request.model and one.ready == ready
        )
        before = [
            one
            for one in outcome.turns
            if one.model != request.model and request.arrival < one.begun < own.begun
        ]
        assert len({one.model for one in before}) == len(before), "each once at most"
        assert wait <= 2 * START + turn + sum(START + turn for _ in before)
    assert waited > 40


def test_a_rule_without_a_stay_swaps_for_each_request() -> None:
    requests = [ModelRequest(10.0 * number, number % 2, 100, 5) for number in range(10)]
    assert run(requests, SwapAtOnce(NAMES, 1)).swaps == 9
    assert run(requests).swaps <= 4


def test_a_rule_in_order_has_loaded_models_wait() -> None:
    requests = [ModelRequest(1.0, 1, 100, 5), ModelRequest(2.0, 0, 100, 5)]
    outcome = run(requests, SwapAtOnce(NAMES, 1))
    assert outcome.swaps == 2
    assert outcome.waits[1] > START, "its model was loaded when it came"


def test_requests_that_come_at_once_are_served_in_their_order() -> None:
    requests = [ModelRequest(1.0, 2, 100, 5), ModelRequest(1.0, 1, 100, 5)]
    outcome = run(requests, SwapAtOnce(NAMES, 1))
    assert (outcome.failed, outcome.swaps) == (0, 2)
    assert outcome.waits[0] < outcome.waits[1]


@pytest.mark.parametrize(
    ("times", "longest", "fewest"),
    [
        ([[0.0, 10.0], []], 0.0, 0),
        ([[0.0], [1.0]], 10.0, 1),
        ([[0.0, 50.0], [1.0]], 60.0, 1),  # both of the first model, then the second
        ([[0.0, 90.0], [1.0]], 60.0, 2),
        ([[0.0, 90.0], [1.0], [2.0]], 60.0, 3),
        ([[], [0.0, 100.0], [50.0, 150.0]], 20.0, 4),
        ([[], [0.0, 100.0], [50.0, 150.0]], 110.0, 2),
    ],
)
def test_the_fewest_swaps_of_small_cases(
    times: list[list[float]], longest: float, fewest: int
) -> None:
    assert fewest_swaps(times, longest, START) == fewest


def test_a_bound_that_nothing_meets_is_an_error() -> None:
    with pytest.raises(ValueError, match="no schedule serves every request within 2 s"):
        fewest_swaps([[0.0], [1.0]], 2.0, START)


request_lists = st.lists(
    st.builds(
        ModelRequest,
        st.floats(0.0, 200.0),
        st.integers(0, MODELS - 1),
        st.integers(1, 500),
        st.integers(1, 100),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=examples(12))
@given(request_lists, st.booleans())
def test_no_rule_takes_fewer_swaps_than_the_fewest(
    requests: list[ModelRequest], at_once: bool
) -> None:
    requests = sorted(requests, key=lambda one: one.arrival)
    outcome = run(requests, SwapAtOnce(NAMES, 1) if at_once else None)
    assert outcome.failed == 0
    assert fewest_swaps(arrivals(requests), max(outcome.waits), START) <= outcome.swaps
