"""What is admitted has room from the router's queue to the pages of the engine."""

import random

import pytest

from services.router.state import fleet
from services.router.state.room import LARGE_SHARE, UNBOUNDED
from tests.support.router.choices import World

FLEETS = (["c1"], ["c1", "c2"], ["p1", "d1"], ["p1", "p2", "d1", "d2"])
CHOICES = (1, 1, 1, 1, 2, 5, 8, 16)


def crowd(seed: int, routers: int = 1) -> World:
    """Let many ask for more than workers run at once, in any order, and finish."""
    draw = random.Random(seed)
    max_running = draw.choice((4, 8, 16))
    world = World(
        FLEETS[seed % len(FLEETS)],
        pages=draw.choice((100, 160, 400)),
        max_running=max_running,
        max_waiting=draw.choice((16, 32)),
        routers=routers,
        draw=draw,
    )
    for _ in range(draw.choice((40, 80))):
        world.ask(
            draw.choice(CHOICES), draw.randint(1, 60), draw.randint(1, 24), draw.choice("abc")
        )
        for _ in range(draw.choice((0, 0, 4, 20))):
            world.act()
    world.finish()
    return world


def check_all_answered(world: World) -> None:
    """Check that each request was refused at once or answered whole, and that all is given back."""
    for one in world.asked:
        if one.error is not None:
            assert (one.placements, one.error.field) == (0, "n"), one.error
        else:
            assert len(one.done) == one.choices
    assert sum(one.error is None for one in world.asked) > len(world.asked) // 2
    for router in world.routers:
        assert router.admission.idle
        assert len(router.fleet.tickets) == 0
    for worker in world.workers.values():
        stats = worker.engine.stats()
        assert (stats.running, stats.waiting, stats.free_pages) == (0, 0, stats.total_pages)


@pytest.mark.parametrize("seed", range(16))
def test_nothing_that_was_admitted_is_refused_for_room(seed: int) -> None:
    world = crowd(seed)
    check_all_answered(world)
    assert all(one.placements <= 1 for one in world.asked)
    for worker in world.workers.values():
        info = worker.engine.info
        assert not worker.refused
        large = max(1, info.max_running // LARGE_SHARE)
        waits = max(0, max(CHOICES) - large) if worker.name[0] != "p" else info.max_waiting
        assert worker.most <= info.max_running + waits, "others wait in the router"


def test_what_several_routers_placed_at_once_is_placed_again_until_it_has_room() -> None:
    refused = 0
    for seed in (0, 2, 3, 5):
        world = crowd(seed, routers=3)
        check_all_answered(world)
        refused += sum(worker.refused for worker in world.workers.values())
    assert refused > 10


def test_without_room_as_a_unit_workers_have_to_hand_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for counted in (True, False):
        if not counted:
            monkeypatch.setattr(fleet, "room", lambda *_: UNBOUNDED)
        world = World(["c1"], 400, 4, 16, 1, random.Random(1))
        for _ in range(20):
            world.ask(8, 4, 20, "a")
        (worker,) = world.workers.values()
        while worker.inbox:
            worker.receive()
        assert worker.refused == (0 if counted else 20 * 8 - 20)
