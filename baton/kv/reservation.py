"""Objects on their way from a writer to a store."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from baton.kv.connection import Connection
from baton.kv.digest import start_digest
from baton.kv.objects import MAX_CHUNK_BYTES, ObjectId
from baton.v1 import kvstore_pb2 as pb

COMMIT_SECONDS = 15.0
INLINE_BYTES = 256 * 1024
"""Less than this is hashed on the event loop: the way to a thread and back would cost more."""


class Reservation:
    """Slots to write objects to; see `KvStoreClient.reserve`. Call `aclose` in a `finally`."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        answer: pb.Reserved,
        executor: Executor,
    ) -> None:
        self._connection = connection
        self._number = number
        self._ids = object_ids
        self._executor = executor
        self._closed = False
        self.slots: dict[int, memoryview] = {}
        """Where to write, by index of the key: exactly the object's length, writable. No thread
        may write to one that was committed, or to any after `aclose`."""
        self.present = frozenset(answer.present)
        """Indexes that the store holds already: nothing to write."""
        self.exhausted = frozenset(answer.exhausted)
        """Indexes that there is no room for now."""
        arena = connection.arena
        for slot in answer.slots:
            if arena is None:
                self.slots[slot.index] = memoryview(bytearray(object_bytes))
            else:
                self.slots[slot.index] = arena.writable(slot.offset_bytes, object_bytes)
        # As long as somebody may write to the arena, this process must count as alive to the store.
        self._lock = connection.lock if self.slots else None
        if self._lock is not None:
            self._lock.hold()
        connection.reservations += len(self.slots)

    async def commit(self, indexes: Sequence[int]) -> int:
        """Make written objects readable; answers how many are, whoever wrote them first.

        Fewer than asked means that slots had lapsed. Each index may be committed once.

        Raises:
            StoreAway: the store cannot be reached.
            BatonError: the store refused, for example an index that has no slot.
        """
        if not indexes:
            return 0
        connection = self._connection
        connection.check()
        views = [(self._ids[index], self.slots[index]) for index in indexes]
        if len(views) * views[0][1].nbytes < INLINE_BYTES:
            digests = _digests(views)
        else:
            loop = asyncio.get_running_loop()
            digests = await loop.run_in_executor(self._executor, _digests, views)
        if connection.arena is None:
            for index in indexes:
                await self._upload(index)
        frame = pb.Commit(correlation_id=self._number, indexes=indexes, digests=digests)
        response = await connection.ask(self._number, pb.PutRequest(commit=frame), COMMIT_SECONDS)
        for index in indexes:
            del self.slots[index]
        if not connection.broken.is_set():
            connection.reservations -= len(indexes)
        return response.committed.readable

    async def aclose(self) -> None:
        """Give back what was not committed. Safe to call twice, and from a `finally`."""
        if self._closed:
            return
        self._closed = True
        if self.slots and not self._connection.broken.is_set():
            frame = pb.Abandon(correlation_id=self._number)
            self._connection.put.post(pb.PutRequest(abandon=frame))
            self._connection.reservations -= len(self.slots)
        self.slots.clear()
        if self._lock is not None:
            self._lock.let_go()

    async def _upload(self, index: int) -> None:
        data = self.slots[index]
        for at in range(0, data.nbytes, MAX_CHUNK_BYTES):
            chunk = pb.WriteChunk(
                correlation_id=self._number,
                index=index,
                offset_bytes=at,
                data=bytes(data[at : at + MAX_CHUNK_BYTES]),
            )
            await self._connection.put.send(pb.PutRequest(write_chunk=chunk))


def _digests(views: Sequence[tuple[ObjectId, memoryview]]) -> bytes:
    """Packed digests of objects."""
    packed = bytearray()
    for object_id, data in views:
        digest = start_digest(object_id, data.nbytes)
        digest.update(data)
        packed += digest.digest()
    return bytes(packed)
