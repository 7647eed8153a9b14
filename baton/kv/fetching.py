"""Objects on their way from a store to a reader."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from baton.kv.arena_file import ArenaFileError, MappedArena
from baton.kv.attach import StoreAway
from baton.kv.connection import Connection
from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from baton.v1 import common_pb2
from baton.v1 import kvstore_pb2 as pb

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends here, so that leases go back while later objects are still copied."""
GRACE_SECONDS = 20.0
"""Beyond the wait itself, how long a silent store is believed to be alive: it may be pacing leases,
and a store that is gone breaks the stream sooner."""
ABANDON_SECONDS = 1.0
"""How long what is on its way may take after `abandon`."""


class Fetched:
    """One object, leased until the next batch is asked for.

    Copy `data` out, then `verify` the copy. Both may be done on any thread.
    """

    def __init__(
        self,
        index: int,
        data: memoryview,
        object_id: ObjectId,
        ready: pb.ReadyObject,
        generation: Callable[[], int],
        trusted: bool,
    ) -> None:
        self.index = index
        """Which of the fetched keys."""
        self.data = data
        self.lease_id = ready.lease_id
        self.bad = False
        """A verification failed: the store is told, and the object counts as missing."""
        self._object_id = object_id
        self._digest = ready.digest
        self._expected = ready.generation
        self._generation = generation
        self._trusted = trusted

    def verify(self, copy: memoryview) -> bool:
        """Whether a copy of `data`, made before, holds the object: its generation and digest.

        The digest is left out where the client's `verify` says so.
        """
        good = self._trusted
        if not good:
            digest = start_digest(self._object_id, copy.nbytes)
            digest.update(copy)
            good = digest.digest() == self._digest
        # The generation comes last: what was copied before it was checked is what was committed.
        good = good and self._generation() == self._expected
        self.bad = self.bad or not good
        return good


class Fetching(AsyncIterator[list[Fetched]]):
    """Yields batches as they come; see `KvStoreClient.fetch`. One consumer.

    After the loop `missing` names what did not come or was bad. Call `aclose` in a `finally`.
    """

    def __init__(
        self,
        connection: Connection,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        wait: float,
        *,
        trusted: bool,
    ) -> None:
        self._connection = connection
        self._number = connection.number()
        self._ids = object_ids
        self._object_bytes = object_bytes
        self._trusted = trusted
        self._silent_after = time.monotonic() + wait + GRACE_SECONDS
        self._coming: set[int] = set(range(len(object_ids)))
        self._arrived: deque[Fetched] = deque()
        self._partial: dict[int, tuple[pb.ReadyObject, bytearray]] = {}
        """Objects whose chunks are coming, by lease."""
        self._held: list[Fetched] = []
        self._awake = asyncio.Event()
        self._done = self._abandoned = self._closed = False
        self._abandoned_until = 0.0
        self._first_at = self._last_at = 0.0
        self.missing: set[int] = set()
        """Indexes that did not come, or were bad. Complete once the iteration has ended."""
        self.bytes = 0
        """Bytes given to the consumer and not found bad."""
        self.transport = connection.transport

    @property
    def seconds(self) -> float:
        """From the first object's arrival until the last batch was consumed."""
        return self._last_at - self._first_at

    def start(self, frame: pb.Want) -> None:
        """Ask the store. For the client."""
        frame.correlation_id = self._number
        self._connection.want(self._number, pb.GetRequest(want=frame), self)

    def replace_sources(self, sources: Sequence[common_pb2.KvSource]) -> None:
        """Change where else to look for what has not come."""
        if not (self._done or self._closed):
            frame = pb.WantSources(correlation_id=self._number, sources=sources)
            self._connection.get.post(pb.GetRequest(want_sources=frame))

    def abandon(self) -> None:
        """Stop waiting: the iteration yields what is on its way by now and ends."""
        self._abandoned = True
        self._abandoned_until = time.monotonic() + ABANDON_SECONDS
        self._awake.set()

    async def __anext__(self) -> list[Fetched]:
        self._give_back()
        patience = max(self._silent_after, time.monotonic() + GRACE_SECONDS)
        while not self._arrived:
            # With gRPC, bytes of what was ready may still be on their way when all is answered.
            over = self._done or self._abandoned
            if (over and not self._partial) or self._closed:
                await self.aclose()
                raise StopAsyncIteration
            if self._connection.broken.is_set():
                await self.aclose()
                raise StoreAway(self._connection.reason)
            self._awake.clear()
            until = self._abandoned_until if self._abandoned else patience
            try:
                async with asyncio.timeout(max(0, until - time.monotonic())):
                    await self._awake.wait()
            except TimeoutError:
                if self._abandoned:
                    await self.aclose()
                else:
                    self._connection.fail("the store did not answer a want in time")
        size = 0
        while self._arrived and (not self._held or size < MAX_BATCH_BYTES):
            fetched = self._arrived.popleft()
            self._held.append(fetched)
            size += fetched.data.nbytes
        return list(self._held)

    async def aclose(self) -> None:
        """Give every lease back and end the wait. Safe to call twice, and from a `finally`."""
        if self._closed:
            return
        self._closed = True
        self._give_back()
        self._connection.give_back(
            [*(fetched.lease_id for fetched in self._arrived), *self._partial], []
        )
        self.missing.update(self._coming)
        self.missing.update(fetched.index for fetched in self._arrived)
        self.missing.update(ready.index for ready, _ in self._partial.values())
        self._arrived.clear()
        self._partial.clear()
        self._connection.forget(self._number)
        if not self._done and not self._connection.broken.is_set():
            cancel = pb.CancelWant(correlation_id=self._number)
            self._connection.get.post(pb.GetRequest(cancel_want=cancel))
        self._awake.set()

    # Reader

    def on_ready(self, objects: Sequence[pb.ReadyObject]) -> None:
        if self._abandoned:
            self._connection.give_back([ready.lease_id for ready in objects], [])
            return
        bad = []
        wanted = []
        for ready in objects:
            if ready.index not in self._coming or ready.object_bytes != self._object_bytes:
                bad.append(ready.lease_id)
                continue
            self._coming.discard(ready.index)
            wanted.append(ready)
        self._first_at = self._first_at or time.monotonic()
        arena = self._connection.arena
        if arena is not None:
            bad.extend(self._map(arena, wanted))
        elif wanted:
            self._partial.update({ready.lease_id: (ready, bytearray()) for ready in wanted})
            self._connection.fetch([ready.lease_id for ready in wanted], self)
        if bad:
            self._connection.give_back([], bad)
        self._awake.set()

    def on_chunk(self, chunk: pb.ReadChunk) -> None:
        ready, buffer = self._partial[chunk.lease_id]
        buffer += chunk.data
        if not chunk.last:
            return
        del self._partial[chunk.lease_id]
        if len(buffer) == ready.object_bytes:
            self._arrive(ready, memoryview(buffer), lambda: ready.generation)
        else:  # gone while it was sent
            self.missing.add(ready.index)
            self._connection.give_back([ready.lease_id], [])
        self._awake.set()

    def on_done(self) -> None:
        self._done = True
        self._awake.set()

    def on_broken(self) -> None:
        self._awake.set()

    # Inside

    def _map(self, arena: MappedArena, objects: Sequence[pb.ReadyObject]) -> list[int]:
        """Take objects from shared memory; answers leases of those that lie outside of it."""
        outside = []
        for ready in objects:
            try:
                data = arena.readable(ready.offset_bytes, ready.object_bytes)
            except ArenaFileError:
                self.missing.add(ready.index)
                outside.append(ready.lease_id)
            else:
                self._arrive(ready, data, partial(arena.generation, ready.offset_bytes))
        return outside

    def _arrive(
        self, ready: pb.ReadyObject, data: memoryview, generation: Callable[[], int]
    ) -> None:
        object_id = self._ids[ready.index]
        self._arrived.append(
            Fetched(ready.index, data, object_id, ready, generation, self._trusted)
        )

    def _give_back(self) -> None:
        if not self._held:
            return
        held, self._held = self._held, []
        bad = [fetched for fetched in held if fetched.bad]
        good = [fetched for fetched in held if not fetched.bad]
        self.missing.update(fetched.index for fetched in bad)
        self.bytes += sum(fetched.data.nbytes for fetched in good)
        self._last_at = time.monotonic()
        self._connection.give_back(
            [fetched.lease_id for fetched in good], [fetched.lease_id for fetched in bad]
        )
