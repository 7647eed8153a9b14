"""Objects that one fetch awaits: found in the arena's index, or requested and leased.

In shared memory a reader first searches the arena's index and copies what it finds, without a
message to the store and without a lease. If the slot's generation shows that an object was evicted
meanwhile, it is requested like one that was not found. Requested objects arrive leased.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import ArenaFileError, MappedArena
from baton.kv.arena.index import object_tag
from baton.kv.client.connection import StoreConnection
from baton.kv.client.fetched_object import FetchedObject
from baton.kv.keys import pack
from baton.kv.objects import ObjectId
from baton.kv.wire.lease import parse_leases


class _PartialObject:
    """A leased object whose bytes are arriving."""

    __slots__ = ("digest", "generation", "index", "pieces", "received")

    def __init__(self, index: int, generation: int, digest: bytes) -> None:
        self.index = index
        self.generation = generation
        self.digest = digest
        self.pieces: list[memoryview] = []
        self.received = 0


class PendingObjects:
    """All objects that one fetch requested and its consumer has not received. A ReadListener.

    Owned by its KvFetch, on the asyncio loop; bounded by the fetch's keys.

    Args:
        connection: to the store.
        object_ids: names of the objects, of one layout and part.
        object_bytes: length of each.
        wait: seconds to wait for objects that the store does not hold; 0: do not wait.
        sources: other stores to look in.
        trusted: copies are not verified.
        traceparent: W3C trace context of the fetch.
        tenant: tenant to whose share objects from sources are charged.
    """

    def __init__(
        self,
        connection: StoreConnection,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        wait: float,
        sources: Sequence[pb.KvSource],
        *,
        trusted: bool,
        traceparent: str = "",
        tenant: str = "",
    ) -> None:
        self._connection = connection
        self._ids = object_ids
        self.object_bytes = object_bytes
        self._deadline = time.monotonic() + wait if wait else 0.0
        self._sources = sources
        self._trusted = trusted
        self._traceparent = traceparent
        self._tenant = tenant
        self._absent: set[int] = set(range(len(object_ids)))
        """Indexes of objects of which nothing has arrived."""
        self._reads: dict[int, Sequence[int]] = {}
        """Open reads, with the indexes that each requests."""
        self._partial: dict[int, _PartialObject] = {}
        """Partly received objects, by lease."""
        self._stopped = False
        self.arrived: deque[FetchedObject] = deque()
        self.missing: set[int] = set()
        """Indexes that will not arrive."""
        self.first_at = 0.0
        """Monotonic time of the first arrival; 0 before."""
        self.changed = asyncio.Event()
        """Set when something arrived or ended."""

    @property
    def complete(self) -> bool:
        """Whether no more objects will arrive."""
        # With gRPC, bytes of ready objects may still be in transit when all reads are done.
        return (not self._reads or self._stopped) and not self._partial

    def start(self) -> None:
        """Search the index, and request the remaining objects from the store."""
        arena = self._connection.arena
        if arena is not None and self._ids:
            self._read_index(arena)
        if self._absent:
            self._read(sorted(self._absent))

    def read_again(self, indexes: Sequence[int]) -> None:
        """Request objects whose unleased copies were corrupt."""
        self._absent.update(indexes)
        if indexes and not self._stopped and not self._connection.broken.is_set():
            self._read(indexes)

    def record_reads(self, indexes: Sequence[int]) -> None:
        """Record which objects were read without a lease."""
        if indexes:
            keys = [self._ids[index].key for index in indexes]
            self._connection.gets.record_reads(self._ids[0]._replace(key=b""), keys)

    def replace_sources(self, sources: Sequence[pb.KvSource]) -> None:
        """Replace the other stores in which to look for missing objects."""
        self._sources = sources
        for read_id in self._reads:
            self._connection.gets.replace_sources(read_id, sources)

    def stop(self) -> None:
        """Accept only objects that are in transit."""
        self._stopped = True
        self.changed.set()

    def close(self) -> None:
        """Release every lease and cancel every read."""
        self._stopped = True
        leases = [fetched.lease_id for fetched in self.arrived if fetched.lease_id]
        self._connection.gets.release([*leases, *self._partial])
        self.missing.update(self._absent)
        self.missing.update(fetched.index for fetched in self.arrived)
        self.missing.update(partial.index for partial in self._partial.values())
        self.arrived.clear()
        self._partial.clear()
        for read_id in self._reads:
            self._connection.gets.cancel_read(read_id)
        self._reads.clear()
        self.changed.set()

    # ReadListener

    def on_ready(self, ready: pb.Ready) -> None:
        wanted = self._reads.get(ready.correlation_id, ())
        if self._stopped:
            self._connection.gets.release(ready.lease_ids)
            return
        arena = self._connection.arena
        bad = []
        for which, lease_id, offset, generation, object_bytes, digest in parse_leases(ready):
            index = wanted[which] if 0 <= which < len(wanted) else -1
            if index not in self._absent or object_bytes != self.object_bytes:
                bad.append(lease_id)
                continue
            self._absent.discard(index)
            if arena is None:
                self._partial[lease_id] = _PartialObject(index, generation, digest)
                continue
            try:
                data = arena.readable(offset, self.object_bytes)
            except ArenaFileError:
                self.missing.add(index)
                bad.append(lease_id)
                continue
            page = arena.page(offset)
            self._add(index, (data,), digest, lease_id, arena.generations, page, generation)
        self.first_at = self.first_at or time.monotonic()
        if bad:
            self._connection.gets.release([], bad)
        self.changed.set()

    def on_piece(self, lease_id: int, offset: int, data: memoryview) -> None:
        partial = self._partial.get(lease_id)
        if partial is None:
            return  # a piece beyond the end, or of an object found corrupt
        partial.pieces.append(data)
        in_order = offset == partial.received and data.nbytes > 0
        partial.received += data.nbytes
        if in_order and partial.received < self.object_bytes:
            return
        del self._partial[lease_id]
        if in_order and partial.received == self.object_bytes:
            generation = partial.generation
            pieces = partial.pieces
            self._add(partial.index, pieces, partial.digest, lease_id, (generation,), 0, generation)
        else:  # evicted while it was being sent
            self.missing.add(partial.index)
            self._connection.gets.release([lease_id])
        self.changed.set()

    def on_done(self, read_id: int) -> None:
        self._reads.pop(read_id, None)
        self.changed.set()

    def on_broken(self) -> None:
        self.changed.set()

    # Inside

    def _read_index(self, arena: MappedArena) -> None:
        layout_id, _, group, shard, part = self._ids[0]
        tag = object_tag(layout_id, group, shard, part)
        keys = pack([object_id.key for object_id in self._ids])
        for index, data, page, generation, digest in arena.find(keys, tag, self.object_bytes):
            self._add(index, (data,), digest, 0, arena.generations, page, generation)
        if self.arrived:
            self._absent.difference_update([fetched.index for fetched in self.arrived])
            self.first_at = self.first_at or time.monotonic()

    def _read(self, indexes: Sequence[int]) -> None:
        wait = Duration()
        if self._deadline:
            wait.FromNanoseconds(max(1, int((self._deadline - time.monotonic()) * 1e9)))
        first = self._ids[indexes[0]]
        read = pb.Read(
            layout_id=first.layout_id,
            keys=pack([self._ids[index].key for index in indexes]),
            part=first.message(),
            sources=self._sources,
            wait=wait,
            traceparent=self._traceparent,
            tenant=self._tenant,
            send_bytes=not self._connection.mapped,
        )
        self._reads[self._connection.gets.read(read, self)] = indexes

    def _add(
        self,
        index: int,
        pieces: Sequence[memoryview],
        digest: bytes,
        lease_id: int,
        generations: Sequence[int],
        page: int,
        generation: int,
    ) -> None:
        self.arrived.append(
            FetchedObject(
                index,
                pieces,
                self.object_bytes,
                self._ids[index],
                None if self._trusted else digest,
                lease_id,
                generations,
                page,
                generation,
            )
        )
