"""Eight frontends share a limit: what is promised of it, in the simulation that is measured."""

from functools import partial

import pytest

from baton.tenancy.limits.spec import Subject, SubjectLimits
from bench.limits.schemes import ROUTERS, Chunks
from bench.limits.shared import LOADS, Case, run
from bench.limits.world import World


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("frontends", [1, 2, 4])
def test_of_15_at_once_10_are_admitted_after_a_minute_without_any(
    frontends: int, seed: int
) -> None:
    world = World(seed)
    scheme = Chunks(world, SubjectLimits(Subject.KEY, "key_1", requests_per_minute=10), ROUTERS)
    admitted: list[bool] = []

    def ask() -> None:
        for number in range(15):
            at = world.now + world.draw.uniform(0, 0.003)
            world.at(at, partial(scheme.arrive, number % frontends, admitted.append))

    for at in (0.0, 64.0):
        world.at(at, ask)
        world.run(at + 1.0)
        assert (admitted.count(True), len(admitted)) == (10, 15)
        admitted.clear()


def test_the_same_seed_gives_the_same_run() -> None:
    case = Case("chunks", "hopping", seconds=5.0)
    assert run(case) == run(case)
