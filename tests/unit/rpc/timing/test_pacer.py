"""News is told at once after a pause, and never more often than its kind allows."""

from typing import Any

import pytest

from baton.rpc.timing.pacer import Pacer
from tests.support.loops.manual import ManualLoop

URGENT, STEADY = 0.01, 0.1


class World:
    """A pacer, and when it told."""

    def __init__(self) -> None:
        self.clock: Any = ManualLoop()
        self.told: list[float] = []
        self.pacer = Pacer(self._tell, URGENT, STEADY, self.clock)

    def _tell(self) -> None:
        self.told.append(round(self.clock.now, 6))


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("urgent", [False, True])
def test_the_first_change_is_told_at_once_and_not_within_the_call(
    world: World, urgent: bool
) -> None:
    world.pacer.changed(urgent)
    world.pacer.changed(urgent)
    assert world.told == []  # more may change in this moment
    world.clock.advance(0)
    assert world.told == [0.0]


def test_changes_that_nobody_waits_for_are_told_ten_times_a_second(world: World) -> None:
    for _ in range(995):
        world.pacer.changed()
        world.clock.advance(0.001)
    assert world.told == [round(0.1 * count, 6) for count in range(10)]


def test_the_last_change_is_told_though_no_other_follows(world: World) -> None:
    world.pacer.changed()
    world.clock.advance(0.03)
    world.pacer.changed()
    world.clock.advance(60)
    assert world.told == [0.0, 0.1]


def test_an_urgent_change_does_not_wait_for_the_others(world: World) -> None:
    world.pacer.changed()
    world.clock.advance(0.03)
    world.pacer.changed()
    world.clock.advance(0.02)
    world.pacer.changed(True)
    world.clock.advance(0)
    assert world.told == [0.0, 0.05]
    world.clock.advance(60)
    assert world.told == [0.0, 0.05]  # it told the earlier one too


def test_urgent_changes_keep_a_pace_as_well(world: World) -> None:
    for _ in range(95):
        world.pacer.changed(True)
        world.clock.advance(0.001)
    assert world.told == [round(URGENT * count, 6) for count in range(10)]


def test_a_calm_change_does_not_put_an_urgent_one_off(world: World) -> None:
    world.pacer.changed()
    world.clock.advance(0.001)
    world.pacer.changed(True)
    world.pacer.changed()
    world.clock.advance(0.05)
    assert world.told == [0.0, 0.01]


def test_what_is_told_by_hand_begins_a_pause(world: World) -> None:
    world.pacer.changed()
    world.pacer.tell()
    world.clock.advance(0)
    assert world.told == [0.0]
    world.pacer.changed()
    world.clock.advance(0.09)
    assert world.told == [0.0]


def test_closed_it_tells_nothing_more(world: World) -> None:
    world.pacer.changed()
    world.pacer.close()
    world.clock.advance(1)
    assert world.told == []
