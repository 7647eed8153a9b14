"""What holds for any demand."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.sizing.decision import SizingDecision
from services.router.sizing.demand import ModelDemand
from services.router.sizing.needs import decode_need, prefill_need
from services.router.sizing.peaks import Peaks
from services.router.sizing.replicas import Replica, ReplicaPool, ReplicaState
from services.router.sizing.settings import SizingSettings
from services.router.sizing.sizer import WORKERS, ModelObservation, Sizer
from services.router.state.instances import Role
from tests.support.examples import examples

SETTINGS = SizingSettings()
TOKENS = st.floats(0, 1e9)
RATES = st.floats(1, 1e6)
DEMANDS = st.builds(
    ModelDemand, TOKENS, TOKENS, TOKENS, st.integers(0, 10_000), st.integers(0, 10**9), TOKENS
)
STEPS = st.randoms(use_true_random=True).map(lambda draw: _steps(draw))
"""Observations of one model, and the seconds after each: of one seed.

They are thousands of numbers, and hypothesis takes .1 ms to draw each.
"""
NOT_NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 5e-324)


def _steps(draw: random.Random) -> list[tuple[ModelObservation, float]]:
    """Of all kinds, or mostly of a quiet model whose pools stay, seen often: then they go down."""
    roles = [role for role in WORKERS if draw.random() < 0.5]
    quiet = draw.choice((0.0, 0.0, 0.98))
    steps = []
    for number in range(draw.randint(0, 80 if quiet else 12)):
        if number and draw.random() < quiet:
            steps.append((_seen(draw, roles, quiet=True), draw.uniform(10, 30)))
        else:
            some = [role for role in WORKERS if draw.random() < 0.5]
            steps.append((_seen(draw, some, quiet=False), _number(draw, 0, 300)))
    return steps


def _seen(draw: random.Random, roles: Sequence[Role], *, quiet: bool) -> ModelObservation:
    most = 100 if quiet else 1e9
    return ModelObservation(
        ModelDemand(
            _number(draw, 0, most),
            _number(draw, 0, most),
            _number(draw, 0, most),
            0 if quiet else _whole(draw, 10_000),
            _whole(draw, most),
            _number(draw, 0, 1 if quiet else 1e9),
        ),
        {
            role: ReplicaPool(
                [_replica(draw, quiet=quiet) for _ in range(draw.randint(1, draw.choice((4, 12))))]
            )
            for role in roles
        },
        routers_known=quiet or draw.random() < 0.5,
        covered=draw.random() < 0.5,
        ttft_target=_number(draw, 0.01, 600),
        itl_target=draw.choice((_number(draw, 1e-3, 10), math.inf)),
    )


def _replica(draw: random.Random, *, quiet: bool) -> Replica:
    if quiet:
        return Replica(
            prefill_rate=_number(draw, 100, 1e6), samples=9, total_pages=9, block_tokens=16
        )
    return Replica(
        state=draw.choice(list(ReplicaState)),
        prefill_rate=draw.choice((_number(draw, 1, 1e6), draw.choice(NOT_NUMBERS))),
        samples=draw.randint(0, 5),
        pending_tokens=_whole(draw, 10**9),
        running=_whole(draw, 500),
        waiting=_whole(draw, 500),
        step_seconds=draw.choice((_number(draw, 1e-4, 10), draw.choice(NOT_NUMBERS))),
        max_running=_whole(draw, 500),
        used_pages=_whole(draw, 10**6),
        total_pages=_whole(draw, 10**6),
        block_tokens=draw.choice((0, 16, 64)),
        itl_target=draw.choice((_number(draw, 1e-3, 10), math.inf)),
        has_room=draw.random() < 0.5,
    )


def _number(draw: random.Random, low: float, high: float) -> float:
    """A number of any size within bounds, and often one of them."""
    size = 10 ** draw.uniform(-9, 0)
    return draw.choice((low, high, draw.uniform(low, high), low + (high - low) * size))


def _whole(draw: random.Random, high: float) -> int:
    return int(_number(draw, 0, high))


@given(DEMANDS, TOKENS, st.integers(0, 100), RATES, TOKENS, TOKENS)
def test_more_prompts_never_need_fewer(
    demand: ModelDemand, backlog: float, there: int, rate: float, arrived: float, waiting: float
) -> None:
    def need(one: ModelDemand, tokens: float) -> float:
        return prefill_need(one, tokens, there, rate, 2.0, SETTINGS).replicas

    more = demand._replace(arrived_tokens=demand.arrived_tokens + arrived)
    assert need(more, backlog) >= need(demand, backlog)
    assert need(demand, backlog + waiting) >= need(demand, backlog)


@given(DEMANDS, TOKENS, st.integers(0, 100), RATES, st.floats(1, 100))
def test_faster_replicas_never_need_to_be_more(
    demand: ModelDemand, backlog: float, there: int, rate: float, times: float
) -> None:
    slow = prefill_need(demand, backlog, there, rate, 2.0, SETTINGS).replicas
    assert prefill_need(demand, backlog, there, times * rate, 2.0, SETTINGS).replicas <= slow


@given(
    st.integers(0, 10_000),
    st.floats(0, 1e7),
    st.floats(1, 1e6),
    st.floats(1, 1e4),
    st.integers(0, 1_000),
)
def test_more_streams_or_pages_never_need_fewer(
    sequences: int, pages: float, per_replica: float, batch: float, more: int
) -> None:
    def need(streams: int, held: float) -> float:
        return decode_need(streams, held, per_replica, batch, SETTINGS).replicas

    assert need(sequences + more, pages) >= need(sequences, pages)
    assert need(sequences, pages + more) >= need(sequences, pages)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, st.integers(1, 3))
def test_whatever_is_seen_bounds_hold_and_empty_pools_are_idle_ones(
    steps: list[tuple[ModelObservation, float]], floor: int
) -> None:
    sizer = Sizer(SizingSettings(min_replicas=floor, max_replicas=9))
    now = 0.0
    for seen, seconds in steps:
        for decision in sizer.decide("m", seen, now).values():
            # Without idle_seconds, no pool is ever told to be empty.
            assert floor <= decision.replicas <= 9
        now += seconds


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_it_goes_down_by_one_only_where_all_is_known(
    steps: list[tuple[ModelObservation, float]],
) -> None:
    sizer = Sizer(SizingSettings(max_replicas=9))
    before: dict[Role, SizingDecision] = {}
    now = 0.0
    for seen, seconds in steps:
        decisions = sizer.decide("m", seen, now)
        for role, decision in decisions.items():
            known = before.get(role)
            if known is not None and decision.replicas < known.replicas:
                assert decision.replicas == known.replicas - 1
                assert seen.routers_known
                assert all(pool.complete for pool in seen.pools.values())
        before = {**before, **decisions}
        now += seconds


@settings(max_examples=examples(6), deadline=None)
@given(st.floats(0, 8_000), st.integers(1, 6), st.floats(0, 0.08), st.integers(0, 2**32 - 1))
def test_a_constant_load_with_noise_does_not_swing(
    tokens: float, started: int, noise: float, seed: int
) -> None:
    """Two hours of a load that varies by up to 8 %: once up, once down, and then it stays."""
    sizer = Sizer()
    there, sizes, state = started, [started], seed
    for second in range(0, 7_200, 2):
        state = (1_103_515_245 * state + 12_345) % 2**31
        factor = 1 + noise * (2 * state / 2**31 - 1)
        replica = Replica(prefill_rate=1_000, samples=9, total_pages=1_000, block_tokens=16)
        seen = ModelObservation(
            ModelDemand(arrived_tokens=30 * tokens * factor),
            {Role.COMBINED: ReplicaPool([replica] * there)},
        )
        decision = sizer.decide("m", seen, float(second))[Role.COMBINED]
        if decision.replicas != there:
            there = decision.replicas
            sizes.append(there)
    lowered = [after < before for before, after in pairwise(sizes)]
    assert lowered == sorted(lowered), sizes  # once one was stopped, none is started
    assert there >= math.ceil(tokens / 700 - 1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1e6)), min_size=1, max_size=40),
    st.floats(1, 1_000),
)
def test_peaks_are_those_of_a_naive_window(
    steps: list[tuple[float, float]], seconds: float
) -> None:
    peaks, now = Peaks(seconds), 0.0
    values: list[tuple[int, float]] = []
    for passed, value in steps:
        now += passed
        peaks.add(value, now)
        values.append((math.floor(now), value))
        first = math.floor(now - seconds)
        assert peaks.highest(now) == max(one for at, one in values if at >= first)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_replicas", 0),
        ("max_replicas", 0),
        ("utilization", 0.0),
        ("utilization", 1.1),
        ("occupancy", math.nan),
        ("arrival_seconds", 0.0),
        ("backlog_seconds", -1.0),
        ("ttft_target", math.nan),
        ("hold_seconds", 0.0),
        ("idle_seconds", -1.0),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        SizingSettings(**{field: value})
