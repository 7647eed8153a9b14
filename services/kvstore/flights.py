"""Objects that are being fetched from other stores into slots of this one."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from xxhash import xxh3_128

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from baton.kv.registry import GRPC, NIXL
from services.kvstore.slots import Refusal, Slot, State
from services.kvstore.store import PEER, Store


@dataclass(eq=False, slots=True)
class Flight:
    """One object on its way."""

    slot: Slot
    digest: bytes
    hash: xxh3_128
    got: int = 0


class Flights:
    """Each object is fetched once at a time, whoever and however many want it.

    Args:
        store: where objects go.
        window_bytes: how much may be on its way at once; one object at least.
        verify: whether what came is checked against its digest.
    """

    def __init__(self, store: Store, window_bytes: int, *, verify: bool = True) -> None:
        self._store = store
        self._window_bytes = window_bytes
        self.verify = verify
        self.failures = store.peer_failures
        self._flying: dict[ObjectId, Flight] = {}
        self._bytes = 0

    def __contains__(self, object_id: ObjectId) -> bool:
        return object_id in self._flying

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def full(self) -> bool:
        """Whether another flight has to wait for one to end."""
        return bool(self._flying) and self._bytes >= self._window_bytes

    def begin(
        self,
        object_id: ObjectId,
        object_bytes: int,
        digest: bytes,
        tenant: str = "",
        writer: Hashable | None = None,
    ) -> Flight | Refusal:
        """Reserve a slot for an object that is not flying, or PRESENT or EXHAUSTED.

        Args:
            object_id: the object.
            object_bytes: its length.
            digest: what its bytes must have.
            tenant: on whose share it is counted.
            writer: who writes them into the arena, if this process does not.
        """
        slot = self._store.reserve(object_id, object_bytes, tenant=tenant, writer=writer)
        if isinstance(slot, Refusal):
            return slot
        flight = Flight(slot, digest, start_digest(object_id, object_bytes))
        self._flying[object_id] = flight
        self._bytes += slot.slot_bytes
        return flight

    def write(self, flight: Flight, offset: int, data: memoryview) -> bool:
        """Take in the next bytes; False where they do not fit, or the slot lapsed."""
        slot, end = flight.slot, flight.got + len(data)
        if slot.state is not State.RESERVED or offset != flight.got or end > slot.object_bytes:
            return False
        self._store.arena.view(slot)[flight.got : end] = data
        flight.hash.update(data)
        flight.got = end
        self._store.moved_bytes[PEER, GRPC] += len(data)
        return True

    def finish(self, flight: Flight) -> bool:
        """All bytes came: commit the object if they are right, else give its slot back."""
        right = not self.verify or flight.hash.digest() == flight.digest
        return self._settle(flight, right and flight.got == flight.slot.object_bytes)

    def offset(self, flight: Flight) -> int:
        """Where a peer that writes into the arena puts the object, in the arena's file."""
        return self._store.arena.file_offset(flight.slot)

    def check(self, flights: Sequence[Flight]) -> list[bool]:
        """Whether objects that a peer has written are right. On any thread; takes long."""
        right = []
        for flight in flights:
            flight.hash.update(self._store.arena.view(flight.slot))
            right.append(flight.hash.digest() == flight.digest)
        return right

    def landed(self, flight: Flight, *, good: bool) -> bool:
        """A peer has written an object: commit it if it is right, else give its slot back."""
        self._store.moved_bytes[PEER, NIXL] += flight.slot.object_bytes
        return self._settle(flight, good and flight.slot.state is State.RESERVED)

    def quarantine(self, flight: Flight) -> None:
        """A peer that was to write it is not heard of, and may write still."""
        self._forget(flight)
        self._store.lose([flight.slot])

    def bury(self, flights: Iterable[Flight]) -> None:
        """The peer does not write these any more."""
        self._store.abandon(flight.slot for flight in flights)

    def _settle(self, flight: Flight, good: bool) -> bool:
        """Nobody writes to it any more: commit it if it is good, else give its slot back."""
        slot = flight.slot
        self._forget(flight)
        if good:
            self._store.commit(slot, flight.digest)
        else:
            self._store.abandon([slot])
        return good

    def drop(self, flight: Flight) -> None:
        """It will not arrive: give its slot back."""
        self._forget(flight)
        self._store.abandon([flight.slot])

    def _forget(self, flight: Flight) -> None:
        del self._flying[flight.slot.object_id]
        self._bytes -= flight.slot.slot_bytes
