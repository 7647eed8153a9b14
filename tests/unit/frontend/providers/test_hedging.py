"""When a second upstream is asked."""

import random

from services.frontend.providers.hedging import MIN_SECONDS, SHARE, HedgePolicy


def test_only_what_is_late_and_at_most_a_share() -> None:
    policy, draw = HedgePolicy(), random.Random(1)
    second = late = 0
    for number in range(4000):
        policy.add_request()
        seconds = draw.expovariate(1.0)
        delay = policy.delay()
        if number < 20:
            assert delay is None
        if delay is not None and seconds > delay:
            late += 1
            second += policy.take()
        policy.add_first_token(seconds)
    assert 150 < second <= late
    assert second <= 4000 * SHARE + 1
    assert 2.0 < (policy.delay() or 0.0) < 4.5  # 95 % are below 3.0


def test_an_upstream_that_becomes_slow_is_not_asked_twice_for_each_request() -> None:
    policy = HedgePolicy()
    for _ in range(200):
        policy.add_first_token(0.001)
    assert policy.delay() == MIN_SECONDS
    second = 0
    for _ in range(200):
        policy.add_request()
        second += policy.take()
    assert second <= 200 * SHARE + 1
