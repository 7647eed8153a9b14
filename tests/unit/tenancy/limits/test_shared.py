"""Eight frontends share a limit: what is promised of it, in the simulation that is measured."""

import pytest

from bench.limits.shared import LOADS, Case, run


@pytest.mark.parametrize("load", LOADS)
def test_a_limit_is_used_whole_wherever_the_load_comes(load: str) -> None:
    outcome = run(Case("chunks", load))
    assert 0.98 <= outcome.share <= 1.02
    assert outcome.window <= 1.0
    assert outcome.messages <= 250


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_owner_costs_two_seconds_and_admits_no_more(seed: int) -> None:
    outcome = run(Case("chunks", "even", seconds=30.0, kill=True, seed=seed))
    assert outcome.window <= 1.0
    assert outcome.recovered >= 0.9


def test_the_same_seed_gives_the_same_run() -> None:
    case = Case("chunks", "hopping", seconds=5.0)
    assert run(case) == run(case)
