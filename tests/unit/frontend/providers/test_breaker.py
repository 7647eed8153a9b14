"""When an upstream may be asked."""

from services.frontend.providers.breaker import OPEN_AFTER, Breaker, BreakerState
from services.frontend.providers.retry_budget import SHARE, RetryBudget


def opened(now: float) -> Breaker:
    breaker = Breaker()
    for _ in range(OPEN_AFTER):
        assert breaker.try_begin(now)
        breaker.failed(now)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker()
    for _ in range(3):
        for _ in range(OPEN_AFTER - 1):
            assert breaker.try_begin(0.0)
            breaker.failed(0.0)
        breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    breaker = opened(0.0)
    assert breaker.state is BreakerState.OPEN
    assert (breaker.try_begin(0.9), breaker.wait_seconds(0.25)) == (False, 0.75)


def test_one_probe_a_second_until_one_succeeds() -> None:
    breaker = opened(0.0)
    probes = 0
    for step in range(1000):
        now = step / 100
        if breaker.try_begin(now):
            probes += 1
            assert not breaker.try_begin(now)
            breaker.failed(now)
    assert probes == 9
    assert breaker.try_begin(20.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.try_begin(30.0)  # the probe runs
    breaker.answered()
    assert (breaker.state, breaker.try_begin(30.0)) == (BreakerState.CLOSED, True)


def test_clients_wait_longer_the_longer_it_is_open() -> None:
    breaker = opened(0.0)
    waits = [breaker.client_seconds(now) for now in (0.0, 0.5, 4.0, 60.0)]
    assert waits == [1.0, 0.5, 4.0, 10.0]
    assert breaker.try_begin(60.0)
    breaker.answered()
    assert breaker.client_seconds(60.0) == 0.0


def test_a_probe_whose_client_left_makes_room_for_another() -> None:
    breaker = opened(0.0)
    assert breaker.try_begin(1.0)
    breaker.abandoned()
    assert not breaker.try_begin(1.5)
    assert breaker.try_begin(2.0)


def test_broken_streams_open_it_although_they_begin() -> None:
    breaker = Breaker()
    for _ in range(OPEN_AFTER):
        assert breaker.try_begin(0.0)
        breaker.answered()
        breaker.failed(0.0)
    assert breaker.state is BreakerState.OPEN


def test_a_wait_that_was_asked_for_is_kept() -> None:
    breaker = Breaker()
    breaker.block(0.0, 20.0)
    assert (breaker.try_begin(19.9), breaker.try_begin(20.0)) == (False, True)


def test_retries_are_a_share_of_requests() -> None:
    budget, retries = RetryBudget(), 0
    for _ in range(1000):
        budget.add_request()
        retries += budget.take()
    assert retries <= 1000 * SHARE + 10
    assert retries >= 1000 * SHARE
