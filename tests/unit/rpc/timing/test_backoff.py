"""Delays between attempts double, are bounded, jittered, and start over after a success."""

from baton.rpc.timing.backoff import Backoff


def test_delays_double_up_to_the_last_one() -> None:
    backoff = Backoff(0.1, 0.5, chance=lambda: 0.5)
    assert [backoff.next() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.next() == 0.1


def test_jitter_spreads_a_delay_from_half_to_one_and_a_half() -> None:
    assert Backoff(2.0, 2.0, chance=lambda: 0.0).next() == 1.0
    assert Backoff(2.0, 2.0, chance=lambda: 0.999).next() > 2.99
