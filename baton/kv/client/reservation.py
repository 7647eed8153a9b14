"""Objects that a writer puts into a store."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.connection import StoreConnection
from baton.kv.client.fetched_object import STRIDE_BYTES
from baton.kv.client.staging import StagedSlots
from baton.kv.digest import start_digest
from baton.kv.objects import MAX_CHUNK_BYTES, ObjectId
from baton.kv.wire import bulk

INLINE_BYTES = 256 * 1024
"""Smaller objects are hashed on the event loop: handing them to a thread would cost more."""


class Reservation:
    """Slots to write objects to, returned by `KvStoreClient.reserve`. Call `aclose` in a `finally`.

    Any thread may write an object, with `write` or directly into its slot followed by `seal`; each
    object has one writing thread. All other methods run on the asyncio loop.
    """

    def __init__(
        self,
        connection: StoreConnection,
        reservation_id: int,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        response: pb.Reserved,
        executor: Executor,
        commit_seconds: float,
    ) -> None:
        self._commit_seconds = commit_seconds
        self._connection = connection
        self._id = reservation_id
        self._ids = object_ids
        self._object_bytes = object_bytes
        self._executor = executor
        self._closed = False
        self._digests: dict[int, bytes] = {}
        self.slots: dict[int, memoryview] | StagedSlots
        """Writable memory by index of the key, exactly as long as the object. No thread may write
        to a committed slot, or to any slot after `aclose`.
        """
        self.present = frozenset(response.present)
        """Indexes of objects that the store already holds and that need no write."""
        self.exhausted = frozenset(response.exhausted)
        """Indexes for which the store has no space now."""
        arena = connection.arena
        if arena is None:  # no memory is shared, or the store is gone and `commit` will say so
            self.slots = StagedSlots(connection.staging, response.indexes, object_bytes)
        else:
            slots = zip(response.indexes, response.offsets_bytes, strict=True)
            self.slots = {index: arena.writable(offset, object_bytes) for index, offset in slots}
        # As long as a thread may write to the arena, the store must count this process as alive.
        self._lock = connection.lock if self.slots else None
        if self._lock is not None:
            self._lock.retain()
        connection.puts.reservations += len(self.slots)

    def write(self, index: int, source: memoryview) -> None:
        """Copy an object's bytes into its slot and seal it.

        Raises:
            KeyError: the index has no slot.
            ValueError: `source` is not as long as the object.
        """
        slot = self.slots[index]
        if source.nbytes != self._object_bytes:
            raise ValueError(f"{source.nbytes} bytes are not an object of {self._object_bytes}")
        digest = start_digest(self._ids[index], self._object_bytes)
        if self._object_bytes <= STRIDE_BYTES:
            slot[:] = source
            digest.update(source)
            self._digests[index] = digest.digest()
            return
        for at in range(0, self._object_bytes, STRIDE_BYTES):
            part = source[at : at + STRIDE_BYTES]
            slot[at : at + STRIDE_BYTES] = part
            digest.update(part)
        self._digests[index] = digest.digest()

    def seal(self, index: int) -> None:
        """Compute the digest of a complete slot while its bytes are still in cache.

        Nothing may be written to the slot afterwards. `commit` seals slots that are not sealed.
        """
        digest = start_digest(self._ids[index], self._object_bytes)
        digest.update(self.slots[index])
        self._digests[index] = digest.digest()

    async def commit(self, indexes: Sequence[int]) -> int:
        """Make written objects readable; return how many are readable, including those by other
        clients.

        A smaller number than requested means that slots had expired. Each index may be committed
        once.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request, for example an index that has no slot.
        """
        if not indexes:
            return 0
        connection = self._connection
        connection.check()
        unsealed = [index for index in indexes if index not in self._digests]
        if len(unsealed) * self._object_bytes < INLINE_BYTES:
            self._seal(unsealed)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._seal, unsealed)
        if not connection.mapped:
            await self._upload(indexes)
        digests = b"".join([self._digests[index] for index in indexes])
        frame = pb.Commit(correlation_id=self._id, indexes=indexes, digests=digests)
        response = await connection.puts.request(
            self._id, pb.PutRequest(commit=frame), self._commit_seconds
        )
        for index in indexes:
            self.slots.pop(index)
        connection.puts.count_committed(len(indexes))
        return response.committed.readable

    async def aclose(self) -> None:
        """Release slots that were not committed. Safe to call twice, and from a `finally`."""
        if self._closed:
            return
        self._closed = True
        if self.slots:
            self._connection.puts.abandon(self._id, len(self.slots))
        self.slots.clear()
        if self._lock is not None:
            self._lock.release()

    def _seal(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self.seal(index)

    async def _upload(self, indexes: Sequence[int]) -> None:
        """Send an object's bytes; small objects share a frame."""
        head, parts, room = pb.WriteChunk(correlation_id=self._id), [], MAX_CHUNK_BYTES
        for index in indexes:
            slot, at = self.slots[index], 0
            while at < self._object_bytes:
                if not head.indexes:
                    head.offset_bytes = at
                head.indexes.append(index)
                part = slot[at : at + room]
                parts.append(part)
                at, room = at + part.nbytes, room - part.nbytes
                if not room:
                    await self._connection.puts.send_bulk(bulk.write_chunk(head, parts))
                    head, parts = pb.WriteChunk(correlation_id=self._id), []
                    room = MAX_CHUNK_BYTES
        if parts:
            await self._connection.puts.send_bulk(bulk.write_chunk(head, parts))
