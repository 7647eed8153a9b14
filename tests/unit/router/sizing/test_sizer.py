"""What pools of a model need, by what their replicas report."""

import math
from collections.abc import Mapping, Sequence

import pytest

from services.router.sizing.decision import SizingDecision, SizingReason
from services.router.sizing.demand import NO_DEMAND, ModelDemand
from services.router.sizing.replicas import Replica, ReplicaPool, ReplicaState
from services.router.sizing.settings import SizingSettings
from services.router.sizing.sizer import FORGET_SECONDS, ModelObservation, Sizer
from services.router.state.instances import Role

LEARNED = Replica(
    prefill_rate=1_000,
    samples=10,
    step_seconds=0.01,
    max_running=40,
    total_pages=1_000,
    block_tokens=16,
)


class World:
    """A sizer that is asked every second about one model."""

    def __init__(self, **settings: object) -> None:
        self.sizer = Sizer(SizingSettings(**settings))  # type: ignore[arg-type]
        self.now = 1_000.0

    def run(
        self,
        demand: ModelDemand,
        pools: Mapping[Role, Sequence[Replica]],
        seconds: int = 1,
        **seen: object,
    ) -> dict[Role, SizingDecision]:
        made = {role: ReplicaPool(replicas) for role, replicas in pools.items() if replicas}
        for _ in range(seconds):
            observation = ModelObservation(demand, made)._replace(**seen)
            decisions = self.sizer.decide("m", observation, self.now)
            self.now += 1.0
        return decisions


def arriving(tokens_per_second: float) -> ModelDemand:
    return ModelDemand(arrived_tokens=30 * tokens_per_second)


def test_prompts_size_the_prefill_pool_and_streams_the_decode_pool() -> None:
    streams = LEARNED._replace(running=32, used_pages=100)
    pools = {Role.PREFILL: [LEARNED], Role.DECODE: [streams, streams]}
    decisions = World().run(arriving(2_000), pools)
    assert decisions[Role.PREFILL] == (3, SizingReason.ARRIVALS)
    assert decisions[Role.DECODE] == (2, SizingReason.BATCH)


def test_a_pool_that_takes_both_needs_the_larger() -> None:
    busy = LEARNED._replace(running=40, used_pages=100)
    world = World()
    assert world.run(arriving(300), {Role.COMBINED: [busy]}) == {
        Role.COMBINED: (2, SizingReason.BATCH)
    }
    assert world.run(arriving(2_000), {Role.COMBINED: [busy]}) == {
        Role.COMBINED: (3, SizingReason.ARRIVALS)
    }


def test_decode_workers_alone_take_prompts() -> None:
    decisions = World().run(arriving(2_000), {Role.DECODE: [LEARNED]})
    assert decisions == {Role.DECODE: (3, SizingReason.ARRIVALS)}


def test_kv_pages_bind_where_contexts_are_long() -> None:
    full = LEARNED._replace(running=2, used_pages=900)
    decisions = World().run(NO_DEMAND, {Role.DECODE: [full, full]})
    assert decisions == {Role.DECODE: (3, SizingReason.KV)}


def test_two_pools_that_take_prompts_share_them_by_their_replicas() -> None:
    pools = {Role.PREFILL: [LEARNED] * 3, Role.COMBINED: [LEARNED]}
    # 8 replicas for all: 6 and 2.
    decisions = World().run(arriving(5_600), pools)
    assert {role: one.replicas for role, one in decisions.items()} == {
        Role.PREFILL: 6,
        Role.COMBINED: 2,
    }


def test_starting_replicas_are_there_and_report_nothing() -> None:
    starting = Replica(ReplicaState.STARTING)
    decisions = World().run(NO_DEMAND, {Role.COMBINED: [LEARNED, starting, starting]})
    assert decisions == {Role.COMBINED: (3, SizingReason.HOLD_WINDOW)}


def test_draining_replicas_are_not_there_and_their_work_counts() -> None:
    leaving = LEARNED._replace(state=ReplicaState.DRAINING, running=64, used_pages=10)
    decisions = World().run(NO_DEMAND, {Role.COMBINED: [LEARNED, leaving]})
    assert decisions == {Role.COMBINED: (2, SizingReason.BATCH)}


@pytest.mark.parametrize(
    "broken",
    [
        {"prefill_rate": 0.0},
        {"prefill_rate": math.nan},
        {"prefill_rate": math.inf},
        {"prefill_rate": -5.0},
        {"samples": 1},
    ],
)
def test_a_rate_that_is_not_learned_holds(broken: dict[str, float]) -> None:
    unlearned = LEARNED._replace(**broken)  # type: ignore[arg-type]
    world = World()
    decisions = world.run(arriving(100_000), {Role.COMBINED: [unlearned] * 4}, 2_000)
    assert decisions == {Role.COMBINED: (4, SizingReason.HOLD_RATES)}


def test_a_rate_that_was_learned_is_remembered_for_growing() -> None:
    world = World()
    world.run(arriving(100), {Role.COMBINED: [LEARNED]})
    fresh = Replica(total_pages=1_000, block_tokens=16)
    decisions = world.run(arriving(2_000), {Role.COMBINED: [fresh]})
    assert decisions == {Role.COMBINED: (3, SizingReason.ARRIVALS)}


def test_one_replica_without_a_rate_does_not_matter() -> None:
    pools = {Role.COMBINED: [LEARNED, LEARNED._replace(prefill_rate=math.nan)]}
    assert World().run(arriving(2_000), pools)[Role.COMBINED].replicas == 3


def test_silent_replicas_hold() -> None:
    world = World()
    silent = LEARNED._replace(state=ReplicaState.SILENT)
    world.run(arriving(2_000), {Role.COMBINED: [LEARNED] * 3})
    decisions = world.run(NO_DEMAND, {Role.COMBINED: [LEARNED, LEARNED, silent]}, 3_000)
    assert decisions == {Role.COMBINED: (3, SizingReason.HOLD_REPORTS)}


def test_an_unknown_router_holds() -> None:
    world = World()
    world.run(arriving(2_000), {Role.COMBINED: [LEARNED] * 3})
    decisions = world.run(NO_DEMAND, {Role.COMBINED: [LEARNED] * 3}, 3_000, routers_known=False)
    assert decisions == {Role.COMBINED: (3, SizingReason.HOLD_ROUTERS)}


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_demand_that_cannot_be_holds(value: float) -> None:
    world = World()
    world.run(arriving(2_000), {Role.COMBINED: [LEARNED] * 3})
    broken = ModelDemand(arrived_tokens=value, queued_tokens=5)
    decisions = world.run(broken, {Role.COMBINED: [LEARNED] * 3}, 3_000)
    assert decisions == {Role.COMBINED: (3, SizingReason.HOLD_ROUTERS)}


def test_what_waits_for_room_to_decode_is_no_backlog_of_prefill() -> None:
    queued = ModelDemand(
        arrived_tokens=1, queued_tokens=600_000, queued_sequences=40, queued_kv_tokens=16_800
    )
    full = LEARNED._replace(running=40, used_pages=1_000, has_room=False)
    pools = {Role.PREFILL: [LEARNED], Role.DECODE: [full]}
    decisions = World().run(queued, pools)
    assert decisions[Role.PREFILL].replicas == 1
    assert decisions[Role.DECODE] == (3, SizingReason.KV)
    roomy = {Role.PREFILL: [LEARNED], Role.DECODE: [full, LEARNED]}
    assert World().run(queued, roomy)[Role.PREFILL] == (10, SizingReason.BACKLOG)


def test_the_strictest_target_of_streams_sets_the_batch() -> None:
    def pool(target: float) -> list[Replica]:
        return [
            LEARNED._replace(running=n, step_seconds=0.01 + 0.001 * n, itl_target=target)
            for n in (1, 10, 19)
        ]

    world = World()
    # 30 streams: 40 of a replica by the default target of 50 ms; 10 by 20 ms, of which 8 are used.
    assert world.run(NO_DEMAND, {Role.DECODE: pool(math.inf)})[Role.DECODE].replicas == 3
    assert world.run(NO_DEMAND, {Role.DECODE: pool(0.02)})[Role.DECODE] == (4, SizingReason.BATCH)


def test_a_model_without_workers_wakes_in_every_role_until_its_roles_are_known() -> None:
    world = World(idle_seconds=60)
    assert world.run(NO_DEMAND, {}, 10) == {}
    woken = world.run(ModelDemand(refused_tokens=100), {})
    assert woken.keys() == {Role.PREFILL, Role.DECODE, Role.COMBINED}
    assert set(woken.values()) == {(1, SizingReason.WAKE)}
    pools = {Role.COMBINED: [LEARNED]}
    assert world.run(arriving(10), pools)[Role.COMBINED].replicas == 1
    late = world.run(arriving(10), pools, int(FORGET_SECONDS) + 5)
    assert late.keys() == {Role.COMBINED}


def test_an_empty_pool_that_is_woken_is_sized_by_what_it_learned() -> None:
    world = World(idle_seconds=60)
    world.run(arriving(10), {Role.COMBINED: [LEARNED]})
    assert world.run(NO_DEMAND, {Role.COMBINED: [LEARNED]}, 100)[Role.COMBINED].replicas == 0
    assert world.run(NO_DEMAND, {}, 1_000)[Role.COMBINED] == (0, SizingReason.IDLE)
    queued = ModelDemand(arrived_tokens=63_000, queued_tokens=63_000, queued_sequences=9)
    assert world.run(queued, {})[Role.COMBINED] == (5, SizingReason.WAKE)


def test_pools_of_a_model_empty_together() -> None:
    world = World(idle_seconds=60)
    pools = {Role.PREFILL: [LEARNED], Role.DECODE: [LEARNED._replace(running=1)]}
    decisions = world.run(NO_DEMAND, pools, 500)
    assert decisions[Role.PREFILL].replicas == 1
    pools[Role.DECODE] = [LEARNED]
    decisions = world.run(NO_DEMAND, pools, 62)
    assert {one.replicas for one in decisions.values()} == {0}


def test_models_that_are_gone_are_forgotten() -> None:
    world = World()
    world.run(arriving(5_000), {Role.COMBINED: [LEARNED]})
    world.sizer.retain(["other"])
    assert world.run(NO_DEMAND, {}) == {}
