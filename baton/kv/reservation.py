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
        self._sealed: dict[int, bytes] = {}
        """Digests by index."""
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

    def seal(self, index: int) -> None:
        """Digest what was written to a slot, which is final now. Any thread may call it.

        Best called right after writing, while the bytes are in the processor's cache: `commit`
        digests what was not sealed.
        """
        self._sealed[index] = _digest(self._ids[index], self.slots[index])

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
        open_ = [index for index in indexes if index not in self._sealed]
        if open_ and len(open_) * self.slots[open_[0]].nbytes < INLINE_BYTES:
            self._seal_all(open_)
        elif open_:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._seal_all, open_)
        digests = b"".join(self._sealed[index] for index in indexes)
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

    def _seal_all(self, indexes: Sequence[int]) -> None:
        for index in indexes:
            self.seal(index)

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


def _digest(object_id: ObjectId, data: memoryview) -> bytes:
    digest = start_digest(object_id, data.nbytes)
    digest.update(data)
    return digest.digest()
