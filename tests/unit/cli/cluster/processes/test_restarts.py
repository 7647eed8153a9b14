"""When a process that died is started again."""

from baton.cli.cluster.local.processes.restarts import (
    LIMIT,
    LONGEST_SECONDS,
    QUICK_SECONDS,
    RestartPolicy,
)


def test_a_process_that_keeps_dying_is_given_up() -> None:
    restarts = RestartPolicy()
    waits = [restarts.died(lived_seconds=0.1) for _ in range(LIMIT)]
    assert waits[-1] is None
    assert all(wait is not None for wait in waits[:-1])


def test_waits_grow() -> None:
    restarts = RestartPolicy()
    first, second = restarts.died(0.1), restarts.died(0.1)
    assert first is not None
    assert second is not None
    assert first < second <= LONGEST_SECONDS


def test_a_long_life_forgives() -> None:
    restarts = RestartPolicy()
    for _ in range(LIMIT - 1):
        restarts.died(0.1)
    assert restarts.died(QUICK_SECONDS + 1) is not None
    assert [restarts.died(0.1) is None for _ in range(LIMIT)] == [False] * (LIMIT - 1) + [True]
