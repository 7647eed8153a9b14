"""One fetch as its consumer sees it: batches of objects, each released on the next request."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import StoreUnavailableError
from baton.kv.client.connection import StoreConnection
from baton.kv.client.fetched_object import FetchedObject
from baton.kv.client.pending import PendingObjects

MAX_BATCH_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a batch, so that leases are released while later objects are still copied."""
STOP_SECONDS = 1.0
"""Seconds that objects in transit may take after `stop_waiting`."""


class KvFetch(AsyncIterator[list[FetchedObject]]):
    """Objects as they arrive, in batches, for one consumer on the asyncio loop.

    Made by `KvStoreClient.fetch`. Call `aclose` in a `finally`; afterwards `missing` names the
    objects that did not arrive or were corrupt.
    """

    def __init__(
        self, connection: StoreConnection, pending: PendingObjects, wait: float, silence: float
    ) -> None:
        """Follow `pending`, whose objects may take `wait` seconds to appear.

        A store that is silent for `silence` seconds longer is considered lost. The margin is wide
        because a store may pace leases, and because the stream of a lost store breaks sooner.
        """
        self._silence = silence
        self._connection = connection
        self._pending = pending
        self._silent_after = time.monotonic() + wait + silence
        self._batch: list[FetchedObject] = []
        """The batch that the consumer holds now."""
        self._stop_at = 0.0
        """Time at which iteration ends after `stop_waiting`; 0 before that call."""
        self._closed = False
        self._last_at = 0.0
        self.bytes = 0
        """Bytes passed to the consumer and not found corrupt."""
        self.transport = connection.transport

    @property
    def missing(self) -> set[int]:
        """Indexes of objects that are missing or corrupt. Complete once the iteration has ended."""
        return self._pending.missing

    @property
    def seconds(self) -> float:
        """Seconds from the first object's arrival until the last batch was consumed."""
        return self._last_at - self._pending.first_at

    def replace_sources(self, sources: Sequence[pb.KvSource]) -> None:
        """Replace the other stores in which to look for missing objects."""
        self._pending.replace_sources(sources)

    def stop_waiting(self) -> None:
        """Let the iteration yield the objects that are in transit now, and end."""
        self._stop_at = time.monotonic() + STOP_SECONDS
        self._pending.stop()

    async def __anext__(self) -> list[FetchedObject]:
        self._release_batch()
        pending = self._pending
        silent_after = max(self._silent_after, time.monotonic() + self._silence)
        while not pending.arrived:
            if pending.complete or self._closed:
                await self.aclose()
                raise StopAsyncIteration
            if self._connection.broken.is_set():
                await self.aclose()
                raise StoreUnavailableError(self._connection.reason)
            pending.changed.clear()
            until = self._stop_at or silent_after
            try:
                async with asyncio.timeout(max(0, until - time.monotonic())):
                    await pending.changed.wait()
            except TimeoutError:
                if self._stop_at:
                    await self.aclose()
                else:
                    self._connection.fail("no response to a read in time")
        size = 0
        while pending.arrived and (not self._batch or size < MAX_BATCH_BYTES):
            fetched = pending.arrived.popleft()
            self._batch.append(fetched)
            size += fetched.nbytes
        return list(self._batch)

    async def aclose(self) -> None:
        """Release every lease and stop waiting. Safe to call twice, and from a `finally`."""
        if self._closed:
            return
        self._closed = True
        self._pending.stop()
        self._release_batch()
        self._pending.close()

    def _release_batch(self) -> None:
        """Release the leases of the consumer's batch, and request evicted objects again."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        self._last_at = time.monotonic()
        good = [fetched for fetched in batch if not fetched.bad]
        bad = [fetched for fetched in batch if fetched.bad]
        self.bytes += self._pending.object_bytes * len(good)
        self.missing.update(fetched.index for fetched in bad if fetched.lease_id)
        self._connection.gets.release(
            [fetched.lease_id for fetched in good if fetched.lease_id],
            [fetched.lease_id for fetched in bad if fetched.lease_id],
        )
        self._pending.record_reads([fetched.index for fetched in good if not fetched.lease_id])
        # A corrupt copy read without a lease: the object was evicted, or is corrupt in the store.
        self._pending.read_again([fetched.index for fetched in bad if not fetched.lease_id])
