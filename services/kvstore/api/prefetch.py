"""Prefetch: objects copied from other stores before a reader asks, so that hot prefixes spread."""

import asyncio
import math
from contextlib import suppress

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.settings import StoreLimits
from services.kvstore.api.fields import objects_of, sources_of, tenant_of
from services.kvstore.memory.slot import Lease
from services.kvstore.reads.read_request import ReadRequest, ReadResult
from services.kvstore.store import Store

MAX_KEYS = 4096
"""In one Prefetch."""
LEASE_SECONDS = 0.5
"""Beyond its time, how long a prefetch may wait for room to lease what has arrived."""


class Prefetches:
    """The prefetches of one store, which a router asks for. Owned by KvStoreService.

    Objects are fetched like those that a reader waits for, and evicted like all others. Bounded:
    one too many is refused, for readers come first.
    """

    def __init__(self, store: Store, limits: StoreLimits) -> None:
        self._store = store
        self._limits = limits
        self._running = 0

    async def run(self, request: pb.PrefetchRequest, seconds: float) -> pb.PrefetchResponse:
        """Fetch what the sources hold.

        Args:
            request: the objects, and their sources.
            seconds: how long it may take; what has not arrived by then counts as missing.

        Raises:
            BatonError: the request is malformed, or too many are under way.
        """
        ids, tenant = objects_of(request, MAX_KEYS), tenant_of(request.tenant)
        sources = sources_of(request.sources)
        if not sources:
            raise invalid_field("sources", "are 1 or more")
        if self._running >= self._limits.max_prefetches:
            raise BatonError(
                Reason.NO_CAPACITY,
                f"a store has at most {self._limits.max_prefetches} prefetches",
                retry_after=1,
            )
        store, reader = self._store, _PrefetchReader(self._store)
        now, seconds = store.clock(), min(seconds, self._limits.prefetch_seconds)
        read = ReadRequest(reader, 1, ids, now + seconds, instant=True, tenant=tenant)
        read.set_sources(sources, store.store_id)
        self._running += 1
        try:
            store.waits.add(read, now)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds + LEASE_SECONDS):
                    await reader.done.wait()
        finally:
            self._running -= 1
            store.waits.cancel(read)
        store.log.expedite(math.inf)  # requests waited beside the only copy
        held = {index for index, one in enumerate(ids) if store.table.get(one) is not None}
        return pb.PrefetchResponse(missing=sorted(set(range(len(ids))) - reader.arrived - held))


class _PrefetchReader:
    """A Reader that only notes what arrived, and gives every lease back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.arrived: set[int] = set()
        self.done = asyncio.Event()

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:  # noqa: ARG002
        for index, lease in result.ready:
            self.arrived.add(index)
            self._store.waits.release(lease)
        if result.done:
            self.done.set()

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        """Do nothing: no lease is held for so long."""
