"""What a router counts of the requests that arrive."""

import math

import pytest

from services.router.sizing.demand import NO_DEMAND, DemandLog, ModelDemand


def test_arrivals_count_for_the_window_and_no_longer() -> None:
    log = DemandLog(30.0)
    log.arrived("m", 100, 10.2, 10.2)
    log.arrived("m", 50, 12.7, 12.7)
    assert log.demand("m", 12.7).arrived_tokens == 150
    assert log.demand("m", 41.5).arrived_tokens == 50
    assert log.demand("m", 60.0) == NO_DEMAND
    assert list(log.models(60.0)) == []


def test_a_request_that_waited_elsewhere_counts_when_it_first_arrived() -> None:
    log = DemandLog(30.0)
    log.arrived("m", 100, at=65.0, now=100.0)
    assert log.demand("m", 100.0) == NO_DEMAND
    log.arrived("m", 7, at=80.0, now=100.0)
    assert log.demand("m", 100.0).arrived_tokens == 7
    assert log.demand("m", 111.0) == NO_DEMAND


def test_rejected_requests_are_counted_apart() -> None:
    log = DemandLog()
    log.arrived("m", 10, 1.0, 1.0)
    log.refused("m", 90, 1.0)
    demand = log.demand("m", 1.0)
    assert (demand.arrived_tokens, demand.refused_tokens) == (10, 90)
    assert demand.any


def test_a_request_that_is_cached_whole_still_counts() -> None:
    log = DemandLog()
    log.arrived("m", 0, 1.0, 1.0)
    assert log.demand("m", 1.0).any


@pytest.mark.parametrize("wait", [0.0, 0.005, 0.3, 7.0, 500.0])
def test_the_wait_is_the_90th_percentile_within_a_quarter(wait: float) -> None:
    log = DemandLog()
    for _ in range(9):
        log.waited("m", wait, 1.0)
    log.waited("m", 10_000.0, 1.0)
    found = log.demand("m", 1.0).wait_seconds
    assert wait <= found <= max(0.01, 1.25 * wait)


def test_waits_beyond_all_bins_are_as_long_as_the_last_one() -> None:
    log = DemandLog()
    log.waited("m", 1e9, 1.0)
    assert 600 < log.demand("m", 1.0).wait_seconds < math.inf


def test_memory_is_bounded_by_seconds_not_by_requests() -> None:
    log = DemandLog(30.0)
    for number in range(100_000):
        now = number / 100
        log.arrived("m", 1, now, now)
        log.demand("m", now)
    assert len(log._models["m"]) <= 31


def test_models_do_not_mix() -> None:
    log = DemandLog()
    log.arrived("a", 1, 1.0, 1.0)
    log.arrived("b", 2, 1.0, 1.0)
    assert sorted(log.models(1.0)) == ["a", "b"]
    assert log.demand("b", 1.0).arrived_tokens == 2
    assert log.demand("c", 1.0) == NO_DEMAND


def test_demands_of_two_routers_add_up() -> None:
    one = ModelDemand(1, 2, 3, 4, 5, 6.0)
    other = ModelDemand(10, 20, 30, 40, 50, 2.0)
    assert one.joined(other) == ModelDemand(11, 22, 33, 44, 55, 6.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_numbers_that_cannot_be_are_not_valid(value: float) -> None:
    assert NO_DEMAND.valid
    assert not ModelDemand(arrived_tokens=value).valid
    assert not ModelDemand(wait_seconds=value).valid
