"""Objects on their way from a store to a reader.

In shared memory the reader first looks into the arena's index and copies what it finds there, with
no word to the store and no lease: an object that goes meanwhile shows in its slot's generation, and
is then asked for like one that was not found. What is asked for comes leased.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence

from google.protobuf.duration_pb2 import Duration

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import ArenaFileError
from baton.kv.arena.index import object_tag
from baton.kv.client.attach import StoreUnavailableError
from baton.kv.client.connection import Connection
from baton.kv.client.fetched import FetchedObject
from baton.kv.keys import pack
from baton.kv.objects import ObjectId
from baton.kv.wire.lease import parse_leases

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends here, so that leases go back while later objects are still copied."""
GRACE_SECONDS = 20.0
"""Beyond the wait itself, how long a silent store is believed to be alive: it may be pacing leases,
and a store that is gone breaks the stream sooner."""
ABANDON_SECONDS = 1.0
"""How long what is on its way may take after `abandon`."""


class _Coming:
    """A leased object whose bytes are on their way."""

    __slots__ = ("digest", "generation", "got", "index", "pieces")

    def __init__(self, index: int, generation: int, digest: bytes) -> None:
        self.index = index
        self.generation = generation
        self.digest = digest
        self.pieces: list[memoryview] = []
        self.got = 0


class KvFetch(AsyncIterator[list[FetchedObject]]):
    """Yields batches as they come; see `KvStoreClient.fetch`. One consumer.

    After the loop `missing` names what did not come or was bad. Call `aclose` in a `finally`.
    """

    def __init__(
        self,
        connection: Connection,
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
        self._object_bytes = object_bytes
        self._trusted = trusted
        self._sources = sources
        self._traceparent = traceparent
        self._tenant = tenant
        now = time.monotonic()
        self._deadline = now + wait if wait else 0.0
        self._silent_after = now + wait + GRACE_SECONDS
        self._asked: dict[int, Sequence[int]] = {}
        """Open wants, and the indexes that each asks for."""
        self._coming: set[int] = set(range(len(object_ids)))
        self._arrived: deque[FetchedObject] = deque()
        self._partial: dict[int, _Coming] = {}
        """Objects whose bytes are coming, by lease."""
        self._held: list[FetchedObject] = []
        self._awake = asyncio.Event()
        self._abandoned = self._closed = False
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

    def start(self) -> None:
        """Look into the index, and ask the store for the rest. For the client."""
        if self._connection.arena is not None and self._ids:
            self._look()
        if self._coming:
            self._ask(sorted(self._coming))

    def replace_sources(self, sources: Sequence[pb.KvSource]) -> None:
        """Change where else to look for what has not come."""
        self._sources = sources
        for number in self._asked:
            frame = pb.ReplaceSources(correlation_id=number, sources=sources)
            self._connection.get.post(pb.GetRequest(replace_sources=frame))

    def stop_waiting(self) -> None:
        """Stop waiting: the iteration yields what is on its way by now and ends."""
        self._abandoned = True
        self._abandoned_until = time.monotonic() + ABANDON_SECONDS
        self._awake.set()

    async def __anext__(self) -> list[FetchedObject]:
        self._give_back()
        patience = max(self._silent_after, time.monotonic() + GRACE_SECONDS)
        while not self._arrived:
            # With gRPC, bytes of what was ready may still be on their way when all is answered.
            over = not self._asked or self._abandoned
            if (over and not self._partial) or self._closed:
                await self.aclose()
                raise StopAsyncIteration
            if self._connection.broken.is_set():
                await self.aclose()
                raise StoreUnavailableError(self._connection.reason)
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
            size += fetched.nbytes
        return list(self._held)

    async def aclose(self) -> None:
        """Give every lease back and end the wait. Safe to call twice, and from a `finally`."""
        if self._closed:
            return
        self._closed = True
        self._give_back()
        leases = [fetched.lease_id for fetched in self._arrived if fetched.lease_id]
        self._connection.give_back([*leases, *self._partial], [])
        self.missing.update(self._coming)
        self.missing.update(fetched.index for fetched in self._arrived)
        self.missing.update(coming.index for coming in self._partial.values())
        self._arrived.clear()
        self._partial.clear()
        for number in self._asked:
            self._connection.forget(number)
            if not self._connection.broken.is_set():
                cancel = pb.CancelRead(correlation_id=number)
                self._connection.get.post(pb.GetRequest(cancel_read=cancel))
        self._asked.clear()
        self._awake.set()

    # Reader

    def on_ready(self, ready: pb.Ready) -> None:
        asked = self._asked.get(ready.correlation_id, ())
        if self._abandoned:
            self._connection.give_back(ready.lease_ids, [])
            return
        bad = []
        for which, lease_id, offset, generation, object_bytes, digest in parse_leases(ready):
            index = asked[which] if 0 <= which < len(asked) else -1
            if index not in self._coming or object_bytes != self._object_bytes:
                bad.append(lease_id)
                continue
            self._coming.discard(index)
            if self._connection.arena is None:
                self._partial[lease_id] = _Coming(index, generation, digest)
            elif not self._map(index, offset, generation, digest, lease_id):
                self.missing.add(index)
                bad.append(lease_id)
        self._first_at = self._first_at or time.monotonic()
        if bad:
            self._connection.give_back([], bad)
        self._awake.set()

    def on_piece(self, lease_id: int, offset: int, data: memoryview) -> None:
        coming = self._partial.get(lease_id)
        if coming is None:
            return  # a piece beyond the end, or one of an object that was found wrong
        coming.pieces.append(data)
        in_order = offset == coming.got and data.nbytes > 0
        coming.got += data.nbytes
        if in_order and coming.got < self._object_bytes:
            return
        del self._partial[lease_id]
        if in_order and coming.got == self._object_bytes:
            generation = coming.generation
            self._arrive(
                coming.index, coming.pieces, coming.digest, lease_id, (generation,), 0, generation
            )
        else:  # gone while it was sent
            self.missing.add(coming.index)
            self._connection.give_back([lease_id], [])
        self._awake.set()

    def on_done(self, number: int) -> None:
        self._asked.pop(number, None)
        self._awake.set()

    def on_broken(self) -> None:
        self._awake.set()

    # Inside

    def _look(self) -> None:
        """Take from shared memory what the index shows."""
        arena = self._connection.arena
        assert arena is not None
        layout_id, _, group, shard, part = self._ids[0]
        tag = object_tag(layout_id, group, shard, part)
        keys = pack([object_id.key for object_id in self._ids])
        for index, data, page, generation, digest in arena.find(keys, tag, self._object_bytes):
            self._arrive(index, (data,), digest, 0, arena.generations, page, generation)
        if self._arrived:
            self._coming.difference_update([fetched.index for fetched in self._arrived])
            self._first_at = self._first_at or time.monotonic()

    def _ask(self, indexes: Sequence[int]) -> None:
        """Ask the store."""
        number = self._connection.number()
        self._asked[number] = indexes
        wait = Duration()
        if self._deadline:
            wait.FromNanoseconds(max(1, int((self._deadline - time.monotonic()) * 1e9)))
        first = self._ids[indexes[0]]
        want = pb.Read(
            correlation_id=number,
            layout_id=first.layout_id,
            keys=pack([self._ids[index].key for index in indexes]),
            part=first.message(),
            sources=self._sources,
            wait=wait,
            traceparent=self._traceparent,
            tenant=self._tenant,
            send_bytes=self._connection.arena is None,
        )
        self._connection.want(number, pb.GetRequest(read=want), self)

    def _map(self, index: int, offset: int, generation: int, digest: bytes, lease_id: int) -> bool:
        """Take an object from shared memory; False where it lies outside of the arena."""
        arena = self._connection.arena
        assert arena is not None
        try:
            data = arena.readable(offset, self._object_bytes)
        except ArenaFileError:
            return False
        page = arena.page(offset)
        self._arrive(index, (data,), digest, lease_id, arena.generations, page, generation)
        return True

    def _arrive(
        self,
        index: int,
        pieces: Sequence[memoryview],
        digest: bytes,
        lease_id: int,
        generations: Sequence[int],
        page: int,
        generation: int,
    ) -> None:
        self._arrived.append(
            FetchedObject(
                index,
                pieces,
                self._object_bytes,
                self._ids[index],
                None if self._trusted else digest,
                lease_id,
                generations,
                page,
                generation,
            )
        )

    def _give_back(self) -> None:
        """The consumer is done with a batch: end its leases, and ask for what went meanwhile."""
        if not self._held:
            return
        held, self._held = self._held, []
        self._last_at = time.monotonic()
        good = [fetched for fetched in held if not fetched.bad]
        bad = [fetched for fetched in held if fetched.bad]
        self.bytes += self._object_bytes * len(good)
        self.missing.update(fetched.index for fetched in bad if fetched.lease_id)
        self._connection.give_back(
            [fetched.lease_id for fetched in good if fetched.lease_id],
            [fetched.lease_id for fetched in bad if fetched.lease_id],
        )
        read = [self._ids[fetched.index].key for fetched in good if not fetched.lease_id]
        if read:
            self._connection.report_read(self._ids[0]._replace(key=b""), read)
        # What was read without a lease and is not right has gone, or is wrong: the store knows.
        again = [fetched.index for fetched in bad if not fetched.lease_id]
        self._coming.update(again)
        if again and not (self._closed or self._abandoned or self._connection.broken.is_set()):
            self._ask(again)
