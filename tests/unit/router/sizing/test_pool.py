"""When a pool gets larger, smaller, and empty."""

from collections.abc import Callable

import pytest

from services.router.sizing.decision import Need, SizingDecision, SizingReason
from services.router.sizing.pool import PoolFacts, PoolSizer
from services.router.sizing.settings import SizingSettings

ARRIVALS = SizingReason.ARRIVALS


def facts(need: float = 0.0, replicas: int = 1, **changes: object) -> PoolFacts:
    return PoolFacts(
        need=Need(need, ARRIVALS),
        live=replicas,
        there=replicas,
        demanded=need > 0,
        busy=need > 0,
        wait_seconds=0.0,
        ttft_target=2.0,
        missing=None,
        covered=True,
    )._replace(**changes)


class Pool:
    """A pool whose scaler follows each decision at once."""

    def __init__(self, there: int = 1, **settings: object) -> None:
        self.sizer = PoolSizer(SizingSettings(**settings))  # type: ignore[arg-type]
        self.there = there
        self.now = 0.0
        self.decisions: list[SizingDecision | None] = []

    def run(self, seconds: int, need: Callable[[float], float] | float, **changes: object) -> None:
        for _ in range(seconds):
            wanted = need(self.now) if callable(need) else need
            decision = self.sizer.decide(facts(wanted, self.there, **changes), self.now)
            self.decisions.append(decision)
            if decision is not None:
                self.there = decision.replicas
            self.now += 1.0

    @property
    def last(self) -> SizingDecision:
        decision = self.decisions[-1]
        assert decision is not None
        return decision


def test_more_are_needed_at_once() -> None:
    pool = Pool()
    pool.run(10, 1.0)
    pool.run(1, 6.2)
    assert pool.last == (7, ARRIVALS)


def test_fewer_only_after_ten_minutes_without_a_higher_need_and_step_by_step() -> None:
    pool = Pool()
    pool.run(1, 4.0)
    pool.run(599, 1.0)
    assert pool.last == (4, SizingReason.HOLD_WINDOW)
    pool.run(3, 1.0)
    assert pool.last.replicas == 3
    pool.run(25, 1.0)
    assert pool.last.replicas == 3
    pool.run(10, 1.0)
    assert pool.last.replicas == 2
    # Nine tenths of what is left must have been enough: with 1.0 of 1, the last one stays.
    pool.run(2_000, 1.0)
    assert pool.last == (2, SizingReason.HOLD_WINDOW)


def test_a_large_pool_goes_down_by_a_fifth_at_most_and_never_below_what_was_needed() -> None:
    pool = Pool()
    pool.run(1, 25.0)
    pool.run(900, 12.0)
    sizes = [one.replicas for one in pool.decisions if one is not None]
    steps = [size for number, size in enumerate(sizes) if number == 0 or sizes[number - 1] != size]
    # 12 are at most nine tenths of 14.
    assert steps == [25, 20, 16, 14]


def test_a_need_within_the_ten_minutes_starts_them_anew() -> None:
    pool = Pool()
    pool.run(1, 3.0)
    pool.run(500, 1.0)
    pool.run(1, 3.0)
    pool.run(590, 1.0)
    assert pool.last.replicas == 3
    pool.run(20, 1.0)
    assert pool.last.replicas == 2


def test_first_tokens_that_would_wait_too_long_hold_a_replica() -> None:
    pool = Pool(there=3)
    # 0.8 s of waiting with three replicas are 1.2 s with two: more than half of the target.
    pool.run(1_000, 1.0, wait_seconds=0.8)
    assert pool.last == (3, SizingReason.HOLD_FIRST_TOKEN)
    pool.run(40, 1.0, wait_seconds=0.6)
    assert pool.last.replicas == 2


def test_what_is_there_at_the_start_stays_for_ten_minutes() -> None:
    pool = Pool(there=5)
    pool.run(590, 0.5)
    assert pool.last == (5, SizingReason.HOLD_WINDOW)


def test_before_a_whole_window_was_seen_there_is_a_decision_only_to_grow() -> None:
    pool = Pool(there=2)
    pool.run(5, 1.0, covered=False)
    assert pool.decisions == [None] * 5
    pool.run(1, 3.0, covered=False)
    assert pool.last == (3, ARRIVALS)


@pytest.mark.parametrize("missing", [SizingReason.HOLD_REPORTS, SizingReason.HOLD_ROUTERS])
def test_missing_data_holds_and_lets_it_grow(missing: SizingReason) -> None:
    pool = Pool()
    pool.run(1, 4.0)
    pool.run(3_000, 0.0, missing=missing)
    assert pool.last == (4, missing)
    pool.run(1, 5.0, missing=missing)
    assert pool.last.replicas == 5


def test_a_need_that_is_not_known_holds() -> None:
    pool = Pool()
    pool.run(1, 4.0)
    for _ in range(2_000):
        pool.sizer.decide(facts(4.0)._replace(need=Need(0.0, ARRIVALS, known=False)), pool.now)
        pool.now += 1
    decision = pool.sizer.decide(
        facts(0.0, 4)._replace(need=Need(0.0, ARRIVALS, known=False)), pool.now
    )
    assert decision == (4, SizingReason.HOLD_RATES)


def test_after_an_outage_of_data_ten_minutes_begin_anew() -> None:
    pool = Pool()
    pool.run(1, 2.0)
    pool.run(700, 0.5, missing=SizingReason.HOLD_REPORTS)
    pool.run(590, 0.5)
    assert pool.last == (2, SizingReason.HOLD_WINDOW)
    pool.run(20, 0.5)
    assert pool.last.replicas == 1


def test_moments_without_data_do_not() -> None:
    pool = Pool()
    pool.run(1, 2.0)
    for _ in range(60):
        pool.run(8, 0.5)
        pool.run(2, 0.5, missing=SizingReason.HOLD_REPORTS)
    pool.run(2, 0.5)
    assert pool.last.replicas == 1


def test_the_floor_and_the_ceiling_hold() -> None:
    pool = Pool(min_replicas=2, max_replicas=5)
    pool.run(1, 0.1)
    assert pool.last == (2, SizingReason.FLOOR)
    pool.run(1, 99.0)
    assert pool.last == (5, SizingReason.CEILING)
    pool.run(3_000, 0.1)
    assert pool.last.replicas == 2


def test_without_an_idle_time_a_pool_never_empties() -> None:
    pool = Pool()
    pool.run(10_000, 0.0)
    assert pool.last == (1, SizingReason.FLOOR)


def test_an_idle_pool_empties_after_its_own_time_and_one_request_wakes_it() -> None:
    pool = Pool(there=3, idle_seconds=120)
    pool.run(1, 1.0)
    pool.run(119, 0.0)
    assert pool.last.replicas == 3
    pool.run(2, 0.0)
    assert pool.last == (0, SizingReason.IDLE)
    pool.run(5_000, 0.0)
    assert pool.last == (0, SizingReason.IDLE)
    pool.run(1, 0.0, demanded=True, there=0, live=0)
    assert pool.last == (1, SizingReason.WAKE)


def test_a_pool_stays_awake_until_a_replica_is_live() -> None:
    pool = Pool(there=0, idle_seconds=10)
    pool.run(60, 0.0)
    pool.run(1, 0.0, demanded=True)
    # The request waits where the router does not see it, and the replica takes two minutes.
    pool.run(120, 0.0, there=0, live=0)
    assert pool.last == (1, SizingReason.WAKE)
    pool.run(5, 0.0)
    assert pool.last.replicas == 1
    pool.run(200, 0.0)
    assert pool.last == (0, SizingReason.IDLE)


def test_a_pool_that_never_comes_up_is_given_up_ten_minutes_after_the_last_request() -> None:
    pool = Pool(there=0, idle_seconds=10)
    pool.run(60, 0.0)
    pool.run(1, 0.0, demanded=True, there=0, live=0)
    pool.run(595, 0.0, there=0, live=0)
    assert pool.last.replicas == 1
    pool.run(10, 0.0, there=0, live=0)
    assert pool.last == (0, SizingReason.IDLE)


def test_an_empty_queue_is_not_enough_while_a_replica_works() -> None:
    pool = Pool(idle_seconds=10)
    pool.run(500, 0.0, busy=True)
    assert pool.last.replicas == 1


@pytest.mark.parametrize("missing", [SizingReason.HOLD_REPORTS, SizingReason.HOLD_ROUTERS])
def test_a_pool_of_which_not_all_is_known_does_not_empty(missing: SizingReason) -> None:
    pool = Pool(idle_seconds=10)
    pool.run(5_000, 0.0, missing=missing)
    assert pool.last.replicas == 1
    pool.run(10, 0.0)  # what came until now is not known
    assert pool.last.replicas == 1
    pool.run(1, 0.0)
    assert pool.last.replicas == 0
    pool.run(100, 0.0, missing=missing)
    assert pool.last == (0, missing)


def test_replicas_that_are_lost_are_not_taken_for_fewer_needed() -> None:
    pool = Pool()
    pool.run(1, 4.0)
    for _ in range(300):
        decision = pool.sizer.decide(facts(3.5, 1), pool.now)
        assert decision is not None
        assert decision.replicas == 4
        pool.now += 1


def test_a_scaler_that_does_not_follow_changes_nothing() -> None:
    pool = Pool()
    pool.run(1, 6.0)
    sizes = []
    for _ in range(2_000):
        decision = pool.sizer.decide(facts(1.0, 6), pool.now)
        assert decision is not None
        sizes.append(decision.replicas)
        pool.now += 1
    assert sizes[-1] == 2
    assert sorted(sizes, reverse=True) == sizes


def test_nothing_is_said_about_a_pool_that_has_nothing_and_needs_nothing() -> None:
    pool = Pool(there=0)
    pool.run(100, 0.0)
    assert pool.decisions == [None] * 100
