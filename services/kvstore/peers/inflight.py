"""Objects that are being fetched from other stores into slots of this one."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

from xxhash import xxh3_128

from baton.kv.digest import object_digest, start_digest
from baton.kv.objects import ObjectId
from baton.transports import GRPC, NIXL
from services.kvstore.memory.slot import Refusal, Slot, State
from services.kvstore.store import PEER, Store


@dataclass(eq=False, slots=True)
class Flight:
    """One object on its way."""

    slot: Slot
    digest: bytes
    """What its bytes must have."""
    hash: xxh3_128 | None = None
    """Of the bytes that came in chunks."""
    got: int = 0
    """How many did."""


class InFlight:
    """Each object is fetched once at a time, whoever and however many request it.

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
    def room_bytes(self) -> int:
        """How much more may be on its way; above 0 if nothing is."""
        return max(self._window_bytes - self._bytes, 0 if self._flying else 1)

    def begin_all(
        self,
        object_ids: Sequence[ObjectId],
        digests: Sequence[bytes],
        object_bytes: int,
        tenant: str = "",
        writer: Hashable | None = None,
    ) -> list[Flight | Refusal]:
        """Reserve slots for objects that are not flying: a flight, PRESENT or EXHAUSTED for each.

        Args:
            object_ids: the objects, no two the same.
            digests: what the bytes of each must have.
            object_bytes: the length of each.
            tenant: on whose share they are counted.
            writer: who writes them into the arena, if this process does not.
        """
        answers: list[Flight | Refusal] = []
        slots = self._store.reserve(object_ids, object_bytes, tenant=tenant, writer=writer)
        for slot, digest in zip(slots, digests, strict=True):
            if isinstance(slot, Refusal):
                answers.append(slot)
                continue
            flight = Flight(slot, digest)
            self._flying[slot.object_id] = flight
            self._bytes += slot.slot_bytes
            answers.append(flight)
        return answers

    def write(self, flight: Flight, offset: int, data: memoryview) -> bool:
        """Take in the next bytes; False where they do not fit, or the slot lapsed."""
        slot, end = flight.slot, flight.got + len(data)
        if slot.state is not State.RESERVED or offset != flight.got or end > slot.object_bytes:
            return False
        self._store.arena.view(slot)[flight.got : end] = data
        if flight.hash is None:
            flight.hash = start_digest(slot.object_id, slot.object_bytes)
        flight.hash.update(data)
        flight.got = end
        self._store.moved_bytes[PEER, GRPC] += len(data)
        return True

    def finish(self, flight: Flight) -> bool:
        """All bytes came: commit the object if they are right, else give its slot back."""
        slot = flight.slot
        right = flight.hash is not None and flight.got == slot.object_bytes
        if self.verify and flight.hash is not None:
            right = right and flight.hash.digest() == flight.digest
        self._end([flight], [right])
        return right

    def offset(self, flight: Flight) -> int:
        """Where a peer that writes into the arena puts the object, in the arena's file."""
        return self._store.arena.file_offset(flight.slot)

    def check(self, flights: Sequence[Flight]) -> list[bool]:
        """Whether objects that a peer has written are right. On any thread; takes long."""
        right = []
        for flight in flights:
            layout_id, key, group, shard, part = flight.slot.object_id
            view = self._store.arena.view(flight.slot)
            digest = object_digest(key, layout_id, group, shard, part, view)
            right.append(digest == flight.digest)
        return right

    def landed(self, flights: Sequence[Flight], right: Sequence[bool]) -> list[bool]:
        """A peer has written objects: commit those that are right, give the slots of others back.

        Answers which were committed.
        """
        came = compress(flights, right)
        self._store.moved_bytes[PEER, NIXL] += sum(one.slot.object_bytes for one in came)
        pairs = zip(flights, right, strict=True)
        good = [is_right and flight.slot.state is State.RESERVED for flight, is_right in pairs]
        self._end(flights, good)
        return good

    def quarantine(self, flight: Flight) -> None:
        """A peer that was to write it is not heard of, and may write still."""
        self._forget(flight)
        self._store.expire_slots([flight.slot])

    def release(self, flights: Iterable[Flight]) -> None:
        """The peer does not write these any more."""
        self._store.abandon(flight.slot for flight in flights)

    def _end(self, flights: Sequence[Flight], good: Sequence[bool]) -> None:
        """Nobody writes to them any more: commit those that are good, give back the others."""
        for flight in flights:
            self._forget(flight)
        kept = list(compress(flights, good))
        self._store.commit([one.slot for one in kept], [one.digest for one in kept])
        self._store.abandon(
            one.slot for one, is_good in zip(flights, good, strict=True) if not is_good
        )

    def drop(self, flight: Flight) -> None:
        """It will not arrive: give its slot back."""
        self._forget(flight)
        self._store.abandon([flight.slot])

    def _forget(self, flight: Flight) -> None:
        del self._flying[flight.slot.object_id]
        self._bytes -= flight.slot.slot_bytes
