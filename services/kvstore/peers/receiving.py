"""Objects that one peer store has leased to this one, on their way here. No I/O, no clock.

The peer writes them into the arena where both use NIXL (`receiver`), else they come as chunks over
gRPC. How each of them ended is answered, once: whoever asked for it owes the peer its lease.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import ObjectId
from baton.kv.wire.lease import LeasedObject
from baton.transports import GRPC, NIXL
from services.kvstore.peers.inflight import Flight, InFlight
from services.kvstore.peers.transports.nixl.receiver import Landing, NixlReceiver, in_pushes

STALL_SECONDS = 5.0
"""Without a chunk, while some are awaited, after which other peers may fetch the same objects."""

A = TypeVar("A")
"""What an object was asked for with."""


class End(Enum):
    KEPT = "kept"
    """It is readable here."""
    WRONG = "wrong"
    """What came is not the object, or the peer says that it is gone."""
    FAILED = "failed"
    """It did not come."""
    PUT_OFF = "put off"
    """There was no room, or another peer is faster: nothing is left to do unless that fails."""


class Ended(NamedTuple, Generic[A]):
    """How one object ended."""

    ask: A
    object_id: ObjectId
    lease_id: int
    end: End


class PeerTransfers(Generic[A]):
    """See the module's text.

    Args:
        flights: objects on their way, of all peers.
        receiver: what the peer is asked to write into the arena.
        tenant_of: on whose share an object is counted; None where nobody wants it any more.
    """

    def __init__(
        self,
        flights: InFlight,
        receiver: NixlReceiver,
        tenant_of: Callable[[ObjectId], str | None],
    ) -> None:
        self.receiver = receiver
        self._in_flight = flights
        self._tenant_of = tenant_of
        self._backlog: deque[tuple[A, ObjectId, LeasedObject]] = deque()
        """Waiting for other flights to end."""
        self._fetching: dict[int, tuple[A, Flight]] = {}
        """By the peer's lease."""
        self._landing: dict[int, A] = {}
        """By the peer's lease, of objects that the peer is asked to write."""
        self._heard = 0.0
        """When the last chunk came, or the first was asked for."""
        self._out: list[pb.GetRequest] = []

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._fetching and self.receiver.idle

    def expect(self, ask: A, object_id: ObjectId, leased: LeasedObject) -> None:
        """The peer has leased an object."""
        self._backlog.append((ask, object_id, leased))

    def start(self, now: float) -> list[Ended[A]]:
        """Ask for as much as there is room for."""
        if not self._backlog or self.receiver.undecided(now):
            return []
        ended: list[Ended[A]] = []
        started: dict[int, tuple[A, Flight]] = {}
        up = self.receiver.up
        for (tenant, object_bytes), group in self._next(ended).items():
            answers = self._in_flight.begin_all(
                [object_id for _, object_id, _ in group],
                [one.digest for _, _, one in group],
                object_bytes,
                tenant,
                # Chunks are written by the store itself; a peer may write when least expected.
                writer=self.receiver if up else None,
            )
            for (ask, object_id, one), flight in zip(group, answers, strict=True):
                if isinstance(flight, Flight):
                    started[one.lease_id] = (ask, flight)
                else:
                    ended.append(Ended(ask, object_id, one.lease_id, End.PUT_OFF))
        if up:
            self._landing.update({lease_id: ask for lease_id, (ask, _) in started.items()})
            for part in in_pushes({lease_id: flight for lease_id, (_, flight) in started.items()}):
                self.receiver.begin(
                    part, [self._in_flight.offset(one) for one in part.values()], now
                )
        elif started:
            if not self._fetching:
                self._heard = now
            self._fetching.update(started)
            self._out.append(pb.GetRequest(fetch=pb.Fetch(lease_ids=started)))
        return ended

    def frames(self, now: float) -> list[pb.GetRequest]:
        """What to send now."""
        out, self._out = [*self._out, *self.receiver.frames(now)], []
        return out

    def take_chunk(
        self, lease_id: int, offset: int, data: memoryview, now: float
    ) -> list[Ended[A]]:
        """Bytes of an object came; none where it is gone."""
        ask, flight = self._fetching.get(lease_id, (None, None))
        if ask is None or flight is None:
            return []
        self._heard = now
        object_id = flight.slot.object_id
        if not self._in_flight.write(flight, offset, data):
            self._in_flight.drop(flight)
            end = End.FAILED
        elif data.nbytes and flight.got < flight.slot.object_bytes:
            return []
        else:
            # Gone while it was sent, or wrong: in both cases the peer looks after it.
            end = End.KEPT if self._in_flight.finish(flight) else End.WRONG
        del self._fetching[lease_id]
        return [Ended(ask, object_id, lease_id, end)]

    def landed(self, landing: Landing, right: Sequence[bool]) -> Iterator[Ended[A]]:
        """The peer has written a push.

        Args:
            landing: the push.
            right: of each of its flights, whether its object was found to be right.
        """
        kept = self._in_flight.landed(list(landing.flights.values()), right)
        ends = [
            End.KEPT if is_kept else End.FAILED if is_right else End.WRONG
            for is_kept, is_right in zip(kept, right, strict=True)
        ]
        return self._landed(landing, ends)

    def push_ended(self, push_id: int, now: float) -> Iterator[Ended[A]]:
        """The peer writes no more for a push."""
        landing = self.receiver.ended(push_id, now)
        if landing is None:
            return iter(())
        self._in_flight.failures[NIXL] += 1
        for flight in landing.flights.values():
            self._in_flight.drop(flight)
        return self._landed(landing, [End.FAILED] * len(landing.flights))

    def overdue(self, now: float) -> list[Ended[A]]:
        """Gives up what this peer should have sent by now: others may fetch it."""
        late: list[Ended[A]] = []
        if self._fetching and self._heard + STALL_SECONDS <= now:
            self._in_flight.failures[GRPC] += 1
            for lease_id, (ask, flight) in self._fetching.items():
                self._in_flight.drop(flight)
                late.append(Ended(ask, flight.slot.object_id, lease_id, End.FAILED))
            self._fetching.clear()
        for landing in self.receiver.overdue(now):
            self._in_flight.failures[NIXL] += 1
            late += self._landed(landing, [End.FAILED] * len(landing.flights))
        return late

    def closed(self, now: float) -> None:
        """The stream is gone, and all leases with it."""
        self._out.clear()
        self._backlog.clear()
        for _, flight in self._fetching.values():
            self._in_flight.drop(flight)
        self._fetching.clear()
        self._landing.clear()
        self.receiver.closed(now)

    # Inside

    def _next(
        self, ended: list[Ended[A]]
    ) -> dict[tuple[str, int], list[tuple[A, ObjectId, LeasedObject]]]:
        """What may fly now, by tenant and length; what need not has ended."""
        groups: dict[tuple[str, int], list[tuple[A, ObjectId, LeasedObject]]] = {}
        chosen = set()
        room = self._in_flight.room_bytes
        while self._backlog and room > 0:
            ask, object_id, one = self._backlog.popleft()
            tenant = self._tenant_of(object_id)
            if tenant is None or object_id in self._in_flight or object_id in chosen:
                ended.append(Ended(ask, object_id, one.lease_id, End.PUT_OFF))
                continue
            chosen.add(object_id)
            room -= one.object_bytes
            groups.setdefault((tenant, one.object_bytes), []).append((ask, object_id, one))
        return groups

    def _landed(self, landing: Landing, ends: Sequence[End]) -> Iterator[Ended[A]]:
        for (lease_id, flight), end in zip(landing.flights.items(), ends, strict=True):
            ask = self._landing.pop(lease_id, None)
            if ask is not None:  # else the stream that it was leased on is gone
                yield Ended(ask, flight.slot.object_id, lease_id, end)
