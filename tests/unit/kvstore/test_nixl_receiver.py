"""SpaceAllocator that a peer may write to are free again only once it cannot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire.lease import LeasedObject
from baton.settings import PeerSettings
from services.kvstore.api.admin import stat
from services.kvstore.memory.slot import SlotState
from services.kvstore.peers.inflight import InFlight
from services.kvstore.peers.transfer import Transfer, TransferOutcome
from services.kvstore.peers.transports.nixl.endpoint import Endpoint
from services.kvstore.peers.transports.nixl.push import PUSH_BYTES, in_pushes
from services.kvstore.peers.transports.nixl.receiver import (
    NixlReceiver,
)
from services.kvstore.store import Store
from tests.unit.kvstore.conftest import MIB, make_store, object_id

SIZE = 4096
AGENT = "peer/1"

SETTINGS = PeerSettings(nixl_push_seconds=1, nixl_retry_seconds=2)
ANSWER_SECONDS = SETTINGS.nixl_answer_seconds
LAST_RETRY_SECONDS = SETTINGS.nixl_max_retry_seconds


class Nixl:
    """An agent that is there, and counts."""

    def __init__(self) -> None:
        self.endpoint: Endpoint | None = Endpoint("me/1", b"metadata", 4096, MIB)
        self.failure = ""
        self.expected = 0
        self.started = False

    def start(self) -> None:
        self.started = True

    def wake(self) -> None:
        pass


@dataclass
class World:
    store: Store
    in_flight: InFlight
    nixl: Nixl
    receiver: NixlReceiver
    next_lease: Iterator[int]

    def meet(self, now: float = 0.0, epoch: str = "first") -> None:
        self.receiver.opened(epoch, now)
        assert kinds(self.receiver.frames(now)) == ["nixl_offer"]
        self.answer(AGENT, now)

    def answer(self, agent: str, now: float) -> None:
        self.receiver.handle(pb.GetResponse(nixl_answer=pb.NixlAnswer(agent=agent)), now)

    def ended(self, push_id: int, now: float) -> Sequence[Transfer]:
        return self.receiver.handle(pb.GetResponse(push_ended=pb.PushEnded(push_id=push_id)), now)

    def leased(self, number: int, size: int = SIZE) -> Transfer:
        transfer = Transfer(object_id(number), instant=False)
        transfer.leased = LeasedObject(0, next(self.next_lease), 0, 1, size, b"d" * 16)
        return transfer

    def push(self, *numbers: int, now: float = 0.0) -> tuple[pb.Push, list[Transfer]]:
        transfers = [self.leased(number) for number in numbers]
        begun, _ = self.in_flight.begin(transfers, SIZE, "", self.receiver.writer)
        assert begun == transfers
        self.receiver.begin(transfers, now)
        (frame,) = self.receiver.frames(now)
        return frame.push, transfers


def kinds(frames: list[pb.GetRequest]) -> list[str]:
    return [str(frame.WhichOneof("frame")) for frame in frames]


def states(transfers: list[Transfer]) -> set[SlotState]:
    return {transfer.slot.state for transfer in transfers if transfer.slot is not None}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_store(tmp_path, clock=lambda: 0.0) as store:
        in_flight, nixl = InFlight(store, MIB), Nixl()
        receiver = NixlReceiver(in_flight, nixl, count(1), SETTINGS)  # type: ignore[arg-type]
        yield World(store, in_flight, nixl, receiver, count(1))
        assert receiver.idle
        assert nixl.expected == 0
        assert len(in_flight) == 0
        assert (stat(store).reservations, stat(store).quarantined) == (0, 0)
        assert store.table.pinned_bytes == 0


def test_nothing_is_fetched_until_the_peer_has_answered_or_time_is_up(world: World) -> None:
    world.receiver.opened("first", 0)
    assert world.receiver.undecided(ANSWER_SECONDS - 0.1)
    assert not world.receiver.undecided(ANSWER_SECONDS)
    assert not world.receiver.is_up
    world.receiver.frames(0)
    world.answer(AGENT, 0)
    assert world.receiver.is_up
    assert not world.receiver.undecided(0)


def test_a_refusal_is_not_asked_about_again_for_longer_and_longer(world: World) -> None:
    world.receiver.opened("first", 0)
    now, pauses = 0.0, []
    assert kinds(world.receiver.frames(now)) == ["nixl_offer"]
    for _ in range(9):
        world.answer("", now)
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
    push, transfers = world.push(1, 2)
    assert world.nixl.expected == 1
    assert world.receiver.written("other/1", push.push_id) is None  # not who was asked
    written = world.receiver.written(AGENT, push.push_id)
    assert written is not None
    assert world.receiver.written(AGENT, push.push_id) is None
    assert world.receiver.finish(written, [True, True]) == transfers
    assert {transfer.outcome for transfer in transfers} == {TransferOutcome.KEPT}
    assert stat(world.store).objects == 2


def test_a_late_push_keeps_its_places_until_the_peer_says_that_it_is_over(world: World) -> None:
    world.meet()
    push, transfers = world.push(1, 2)
    assert not world.receiver.overdue(0.9)
    assert world.receiver.overdue(3) == transfers
    assert {transfer.outcome for transfer in transfers} == {TransferOutcome.FAILED}
    assert states(transfers) == {SlotState.QUARANTINED}
    assert world.store.table.pinned_bytes == 0  # the quota is back, the place is not
    (frame,) = world.receiver.frames(3)
    assert list(frame.abandon_pushes.push_ids) == [push.push_id]
    assert not world.receiver.is_up
    assert world.receiver.frames(100) == []  # no new offer while it may still write
    assert not world.ended(push.push_id, 100)
    assert states(transfers) == {SlotState.FREE}
    assert kinds(world.receiver.frames(100)) == ["nixl_offer"]


def test_objects_that_are_fetched_again_leave_their_old_places_to_the_late_push(
    world: World,
) -> None:
    world.meet()
    push, transfers = world.push(1)
    old = transfers[0].slot
    assert old is not None
    world.receiver.overdue(3)
    world.receiver.frames(3)
    world.in_flight.begin(transfers, SIZE, "", None)  # another transport brings it
    assert old.state is SlotState.QUARANTINED
    world.ended(push.push_id, 4)
    assert old.state is SlotState.FREE
    assert states(transfers) == {SlotState.RESERVED}
    world.in_flight.fail(transfers)


def test_a_late_notification_proves_the_end_as_well_and_commits_nothing(world: World) -> None:
    world.meet()
    push, transfers = world.push(1)
    world.receiver.overdue(3)
    assert world.receiver.written(AGENT, push.push_id) is None
    assert states(transfers) == {SlotState.FREE}
    assert stat(world.store).objects == 0


def test_a_push_that_failed_frees_its_places_at_once(world: World) -> None:
    world.meet()
    push, transfers = world.push(1)
    assert world.ended(push.push_id, 0) == transfers
    assert transfers[0].outcome is TransferOutcome.FAILED
    assert states(transfers) == {SlotState.FREE}
    assert not world.receiver.is_up


def test_a_broken_stream_proves_nothing_and_the_next_one_asks_after_the_pushes(
    world: World,
) -> None:
    world.meet()
    push, transfers = world.push(1)
    world.receiver.closed(0)
    assert states(transfers) == {SlotState.QUARANTINED}
    world.receiver.opened("first", 1)
    (frame,) = world.receiver.frames(1)
    assert list(frame.abandon_pushes.push_ids) == [push.push_id]
    assert states(transfers) == {SlotState.QUARANTINED}
    assert not world.ended(push.push_id, 2)
    assert states(transfers) == {SlotState.FREE}


def test_another_epoch_proves_that_the_peer_of_before_is_dead(world: World) -> None:
    world.meet()
    _, transfers = world.push(1)
    world.receiver.closed(0)
    world.receiver.opened("second", 1)
    assert states(transfers) == {SlotState.FREE}
    assert kinds(world.receiver.frames(1)) == ["nixl_offer"]  # it is not made to wait


def test_pushes_are_as_long_as_keeps_both_sides_busy(world: World) -> None:
    transfers = [world.leased(number, PUSH_BYTES // 2) for number in range(3)]
    assert list(in_pushes(transfers)) == [transfers[:2], transfers[2:]]
    assert list(in_pushes([])) == []
