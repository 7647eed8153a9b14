"""Objects that are being fetched from other stores into slots of this one."""

from dataclasses import dataclass

from xxhash import xxh3_128

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from baton.kv.registry import GRPC
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
        self._verify = verify
        self._window_bytes = window_bytes
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
        self, object_id: ObjectId, object_bytes: int, digest: bytes, tenant: str = ""
    ) -> Flight | Refusal:
        """Reserve a slot for an object that is not flying, or PRESENT or EXHAUSTED."""
        slot = self._store.reserve(object_id, object_bytes, tenant=tenant)
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
        slot = flight.slot
        right = not self._verify or flight.hash.digest() == flight.digest
        good = right and flight.got == slot.object_bytes
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
