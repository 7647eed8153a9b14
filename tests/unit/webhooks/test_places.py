"""Receivers that hang are left few places, and tenants take turns."""

from collections import Counter
from itertools import count
from uuid import UUID

import pytest

from baton.webhooks.places import DeliveryPlaces, EventReceiver, PlaceLimits

SLOW = 4.0
LIMITS = PlaceLimits()


def receivers(number: int, tenant: str = "acme", first: int = 0) -> list[EventReceiver]:
    return [EventReceiver(tenant, UUID(int=first + at)) for at in range(number)]


class Process:
    """A process whose receivers all have more deliveries than there are places."""

    def __init__(self) -> None:
        self.places = DeliveryPlaces(SLOW)
        self.now = 0.0
        self.running: dict[int, EventReceiver] = {}
        self._numbers = count()

    def begin(self, *waiting: EventReceiver) -> Counter[EventReceiver]:
        found = self.places.allocate(waiting, self.now)
        for receiver in found.elements():
            number = next(self._numbers)
            self.running[number] = receiver
            self.places.begin(number, receiver, self.now)
        return found

    def end(self, seconds: float, *ended: EventReceiver) -> None:
        for number, receiver in list(self.running.items()):
            if receiver in ended:
                self.places.learn(number, seconds)
                self.places.end(number)
                del self.running[number]


def test_a_new_receiver_has_one_place_until_it_was_quick() -> None:
    process = Process()
    (one,) = receivers(1)
    assert process.begin(one) == {one: 1}
    assert process.begin(one) == {}
    process.end(SLOW, one)
    assert process.begin(one) == {one: LIMITS.quick_each}
    assert process.begin(one) == {}
    process.end(SLOW + 0.1, one)
    assert process.begin(one) == {one: 1}
    process.end(0.1, one)
    assert process.begin(one) == {one: LIMITS.quick_each}


@pytest.mark.parametrize("tenant", ["acme", "other"])
def test_hanging_receivers_leave_places_to_quick_and_to_new_ones(tenant: str) -> None:
    process = Process()
    hanging = receivers(1000)
    quick, new = receivers(2, tenant, 5000)
    process.begin(quick)
    process.end(0.0, quick)
    assert process.begin(*hanging).total() == LIMITS.new
    for _ in range(100):  # until all of them are known
        process.end(15.0, *process.running.values())
        process.begin(*hanging)
    assert len(process.running) == LIMITS.slow
    assert process.begin(*hanging, new) == {new: 1}
    assert process.begin(*hanging, quick) == {quick: LIMITS.quick_each}


def test_receivers_that_begin_to_hang_are_slow_at_once() -> None:
    process = Process()
    turning = receivers(8)
    process.begin(*turning)
    process.end(0.0, *turning)
    assert process.begin(*turning).total() == LIMITS.slow
    process.now = SLOW + 0.1
    new = receivers(100, first=100)
    assert process.begin(*new).total() == LIMITS.new - LIMITS.slow
    process.end(0.0, turning[0])  # it answers after all
    assert process.begin(*turning) == {turning[0]: LIMITS.quick_each}


def test_time_that_the_process_takes_itself_is_not_the_receivers() -> None:
    process = Process()
    (one,) = receivers(1)
    process.begin(one)
    process.places.learn(0, 0.0)
    process.now = 100.0  # its result is being stored
    assert process.begin(one) == {one: LIMITS.quick_each - 1}


def test_tenants_take_turns() -> None:
    process = Process()
    crowd, few = receivers(1000), receivers(2, "other")
    for one in (*crowd[:20], *few):
        process.begin(one)
        process.end(0.0, one)
    found = process.begin(*crowd, *few)
    assert (found[few[0]], found[few[1]]) == (LIMITS.quick_each, LIMITS.quick_each)
    assert found.total() == LIMITS.all
    assert process.places.full
    process.end(0.0, next(iter(process.running.values())))
    third = receivers(1, "third")[0]
    assert process.begin(*crowd, *few, third)[third] == 1


def test_what_is_remembered_is_bounded() -> None:
    process = Process()
    for one in receivers(10_000):
        process.begin(one)
        process.end(0.0 if one.endpoint.int % 2 else 15.0, one)
    known = process.places._speeds.values()
    assert [len(speed) for speed in known] == [4096, 4096]
