"""SpaceAllocator that a peer may write to are free again only once it cannot."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from services.kvstore.api.admin import stat
from services.kvstore.memory.slot import State
from services.kvstore.peers.inflight import Flight, InFlight
from services.kvstore.peers.transports.nixl.agent import Endpoint
from services.kvstore.peers.transports.nixl.receiver import (
    LAST_RETRY_SECONDS,
    MEET_SECONDS,
    PUSH_BYTES,
    NixlReceiver,
    in_pushes,
)
from services.kvstore.store import Store
from tests.unit.kvstore.conftest import MIB, make_store, object_id

SIZE = 4096
AGENT = "peer/1"


class Nixl:
    """An agent that is there, and counts."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = Endpoint("me/1", b"metadata", 4096, MIB)
        self.failure = ""
        self.expected = 0
        self.started = False

    def start(self) -> None:
        self.started = True

    def attend(self) -> None:
        pass


@dataclass
class World:
    store: Store
    flights: InFlight
    nixl: Nixl
    receiver: NixlReceiver
    next_lease: Iterator[int]

    def meet(self, now: float = 0.0, epoch: str = "first") -> None:
        self.receiver.opened(epoch, now)
        assert kinds(self.receiver.frames(now)) == ["nixl_offer"]
        self.receiver.answered(pb.NixlAnswer(agent=AGENT), now)

    def push(self, *numbers: int, now: float = 0.0) -> tuple[pb.Push, list[Flight]]:
        flights = {}
        for number in numbers:
            (flight,) = self.flights.begin_all(
                [object_id(number)], [b"d" * 16], SIZE, writer=self.receiver
            )
            assert isinstance(flight, Flight)
            flights[next(self.next_lease)] = flight
        self.receiver.begin(flights, [0] * len(flights), now)
        (frame,) = self.receiver.frames(now)
        return frame.push, list(flights.values())


def kinds(frames: list[pb.GetRequest]) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames]


def states(flights: list[Flight]) -> set[State]:
    return {flight.slot.state for flight in flights}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_store(tmp_path, clock=lambda: 0.0) as store:
        flights, nixl = InFlight(store, MIB), Nixl()
        receiver = NixlReceiver(flights, nixl, count(1), push_seconds=1, retry_seconds=2)  # type: ignore[arg-type]
        yield World(store, flights, nixl, receiver, count(1))
        assert receiver.idle
        assert nixl.expected == 0
        assert len(flights) == 0
        assert (stat(store).reservations, stat(store).quarantined) == (0, 0)
        assert store.table.pinned_bytes == 0


def test_nothing_is_fetched_until_the_peer_has_answered_or_time_is_up(world: World) -> None:
    world.receiver.opened("first", 0)
    assert world.receiver.undecided(MEET_SECONDS - 0.1)
    assert not world.receiver.undecided(MEET_SECONDS)
    assert not world.receiver.up
    world.receiver.frames(0)
    world.receiver.answered(pb.NixlAnswer(agent=AGENT), 0)
    assert world.receiver.up
    assert not world.receiver.undecided(0)


def test_a_refusal_is_not_asked_about_again_for_longer_and_longer(world: World) -> None:
    world.receiver.opened("first", 0)
    now, pauses = 0.0, []
    assert kinds(world.receiver.frames(now)) == ["nixl_offer"]
    for _ in range(9):
        world.receiver.answered(pb.NixlAnswer(), now)
        refused = now
        while not world.receiver.frames(now):
            now += 0.5
        pauses.append(now - refused)
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == LAST_RETRY_SECONDS


def test_an_agent_that_fails_to_start_holds_nothing_up(world: World) -> None:
    world.nixl.endpoint, world.nixl.failure = None, "no such library"
    world.receiver.opened("first", 0)
    assert world.receiver.frames(0) == []
    assert not world.receiver.undecided(0)


def test_what_arrives_is_handed_over_once(world: World) -> None:
    world.meet()
    push, flights = world.push(1, 2)
    assert world.nixl.expected == 1
    assert world.receiver.arrived("other/1", push.push_id) is None  # not who was asked
    landing = world.receiver.arrived(AGENT, push.push_id)
    assert landing is not None
    assert world.receiver.arrived(AGENT, push.push_id) is None
    assert world.flights.landed(flights, [True, True]) == [True, True]
    assert stat(world.store).objects == 2


def test_a_late_push_keeps_its_places_until_the_peer_says_that_it_is_over(world: World) -> None:
    world.meet()
    push, flights = world.push(1, 2)
    assert world.receiver.overdue(0.9) == []
    (landing,) = world.receiver.overdue(3)
    assert landing.push_id == push.push_id
    assert states(flights) == {State.QUARANTINED}
    assert world.store.table.pinned_bytes == 0  # the quota is back, the place is not
    (frame,) = world.receiver.frames(3)
    assert list(frame.abandon_pushes.push_ids) == [push.push_id]
    assert not world.receiver.up
    assert world.receiver.frames(100) == []  # no new offer while it may still write
    assert world.receiver.ended(push.push_id, 100) is None
    assert states(flights) == {State.FREE}
    assert kinds(world.receiver.frames(100)) == ["nixl_offer"]


def test_a_late_notification_proves_the_end_as_well_and_commits_nothing(world: World) -> None:
    world.meet()
    push, flights = world.push(1)
    world.receiver.overdue(3)
    assert world.receiver.arrived(AGENT, push.push_id) is None
    assert states(flights) == {State.FREE}
    assert stat(world.store).objects == 0


def test_a_push_that_failed_frees_its_places_at_once(world: World) -> None:
    world.meet()
    push, flights = world.push(1)
    landing = world.receiver.ended(push.push_id, 0)
    assert landing is not None
    assert states(flights) == {State.RESERVED}  # the caller's to give back
    world.flights.drop(flights[0])
    assert not world.receiver.up


def test_a_broken_stream_proves_nothing_and_the_next_one_asks_after_the_pushes(
    world: World,
) -> None:
    world.meet()
    push, flights = world.push(1)
    (landing,) = world.receiver.closed(0)
    assert landing.push_id == push.push_id
    assert states(flights) == {State.QUARANTINED}
    world.receiver.opened("first", 1)
    (frame,) = world.receiver.frames(1)
    assert list(frame.abandon_pushes.push_ids) == [push.push_id]
    assert states(flights) == {State.QUARANTINED}
    world.receiver.ended(push.push_id, 2)
    assert states(flights) == {State.FREE}


def test_another_epoch_proves_that_the_peer_of_before_is_dead(world: World) -> None:
    world.meet()
    _, flights = world.push(1)
    world.receiver.closed(0)
    world.receiver.opened("second", 1)
    assert states(flights) == {State.FREE}
    assert kinds(world.receiver.frames(1)) == ["nixl_offer"]  # it is not made to wait


def test_pushes_are_as_long_as_keeps_both_sides_busy(world: World) -> None:
    flights = {}
    for number in range(3):
        (flight,) = world.flights.begin_all(
            [object_id(number)], [b"d" * 16], SIZE, writer=world.receiver
        )
        assert isinstance(flight, Flight)
        flight.slot.object_bytes = PUSH_BYTES // 2
        flights[number] = flight
    assert [list(part) for part in in_pushes(flights)] == [[0, 1], [2]]
    assert list(in_pushes({})) == []
    for flight in flights.values():
        world.flights.drop(flight)
