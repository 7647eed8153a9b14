"""The leases of one reader's stream, by number, and the bytes that it fetches."""

from collections.abc import Callable, Iterable, Sequence

from baton.errors import invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_CHUNK_BYTES
from baton.kv.wire import bulk
from baton.rpc.wire.messages import Parts
from services.kvstore.memory.slot import Lease, Slot
from services.kvstore.reads.read_request import ReadRequest

MAX_FETCHES = 65_536
"""Most leases of one stream with bytes still to be sent."""
_CHUNK_OBJECTS = 4096
"""Most objects in one ReadChunk."""


class StreamLeases:
    """Leases by number. Owned by one GetStream; bounded by the windows of its requests."""

    def __init__(self) -> None:
        self._by_number: dict[int, tuple[Lease, ReadRequest]] = {}
        self._numbers: dict[Lease, int] = {}
        self._last = 0

    def add(self, request: ReadRequest, leases: Sequence[Lease]) -> range:
        """Number leases of a request; return their numbers."""
        numbers = range(self._last + 1, self._last + 1 + len(leases))
        self._last += len(leases)
        for number, lease in zip(numbers, leases, strict=True):
            self._by_number[number] = (lease, request)
            self._numbers[lease] = number
        return numbers

    def get(self, number: int) -> Lease | None:
        """Return a lease; None if it has ended."""
        return self._by_number.get(number, (None, None))[0]

    def pop(self, number: int) -> tuple[Lease, ReadRequest] | None:
        """Remove and return a lease and its request; None if it has ended."""
        held = self._by_number.pop(number, None)
        if held is not None:
            del self._numbers[held[0]]
        return held

    def discard(self, lease: Lease) -> None:
        """Remove a lease that ended."""
        number = self._numbers.pop(lease, None)
        if number is not None:
            del self._by_number[number]

    def clear(self) -> None:
        """Remove every lease."""
        self._by_number.clear()
        self._numbers.clear()

    def checked(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of leases named by a frame.

        Raises:
            BatonError: one of them was never issued on the stream.
        """
        checked = list(numbers)
        if not all(0 < number <= self._last for number in checked):
            raise invalid_field("lease_ids", "must be leases of this stream")
        return checked

    def slots(self, numbers: Iterable[int]) -> list[Slot] | None:
        """Return the slots of leases named by a frame; None if one of them has ended.

        Raises:
            BatonError: one of them was never issued on the stream.
        """
        leases = [self.get(number) for number in self.checked(numbers)]
        slots = [lease.slot for lease in leases if lease is not None]
        return slots if len(slots) == len(leases) else None


class ChunkQueue:
    """Leases whose bytes a stream is to send, encoded into chunks only when they are sent.

    Owned by one GetStream, which bounds it by MAX_FETCHES and the windows of its requests.
    """

    def __init__(self, leases: StreamLeases) -> None:
        self._leases = leases
        self._sent: dict[int, int] = {}
        """Leases to send, with the bytes of each already sent: 0 except for the first one."""

    def __len__(self) -> int:
        return len(self._sent)

    def add(self, numbers: Iterable[int]) -> None:
        """Queue leases; those queued already keep their positions."""
        for number in numbers:
            self._sent.setdefault(number, 0)

    def clear(self) -> None:
        """Drop the queue."""
        self._sent.clear()

    def next_chunk(self, data_of: Callable[[Slot], memoryview]) -> tuple[Parts, int] | None:
        """Return a serialized ReadChunk and its bytes of objects; None: the queue is empty.

        Leases that ended contribute no bytes.
        """
        head = pb.ReadChunk()
        parts: list[memoryview] = []
        room = MAX_CHUNK_BYTES
        while self._sent and room and len(head.lease_ids) < _CHUNK_OBJECTS:
            number, at = next(iter(self._sent.items()))
            if not head.lease_ids:
                head.offset_bytes = at
            lease = self._leases.get(number)
            size = left = 0
            if lease is not None:
                left = lease.slot.object_bytes - at
                size = min(left, room)
                parts.append(data_of(lease.slot)[at : at + size])
            if size < left:
                self._sent[number] = at + size
            else:
                del self._sent[number]
            head.lease_ids.append(number)
            head.pieces_bytes.append(size)
            room -= size
        if not head.lease_ids:
            return None
        return bulk.read_chunk(head, parts), MAX_CHUNK_BYTES - room
