"""Prefetch: objects copied from other stores before a reader asks, so that hot prefixes spread.

A router that sees many requests for the same objects names them and the stores that hold them.
They are fetched like those that a reader waits for, and evicted like all others.
"""

import asyncio
from contextlib import suppress

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_TENANT_BYTES, parse_object_ids
from services.kvstore.api.get import sources_of
from services.kvstore.memory.slot import Lease
from services.kvstore.reads.read_request import Answer, ReadRequest
from services.kvstore.store import Store

MAX_KEYS = 4096
"""In one Pull."""
MAX_PREFETCHES = 16
"""At a time; a hint more is refused, for readers come first."""
MAX_SECONDS = 60.0
LEASE_SECONDS = 0.5
"""Beyond its time, how long a pull may wait for room to lease what has come: it is here then."""


class Prefetches:
    """The pulls of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running = 0

    async def run(self, request: pb.PrefetchRequest, seconds: float) -> pb.PrefetchResponse:
        """Bring what the sources hold.

        Args:
            request: what, and from whom.
            seconds: how long it may take; what has not come by then counts as missing.

        Raises:
            BatonError: the request is malformed, or too many are under way.
        """
        if len(request.tenant.encode()) > MAX_TENANT_BYTES:
            raise BatonError(
                Reason.INVALID_FIELD, f"tenant has at most {MAX_TENANT_BYTES} bytes", field="tenant"
            )
        try:
            ids = parse_object_ids(request.layout_id, request.keys, request.part, MAX_KEYS)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="keys") from error
        sources = sources_of(request.sources)
        if not sources:
            raise BatonError(Reason.INVALID_FIELD, "sources are 1 or more", field="sources")
        if self._running >= MAX_PREFETCHES:
            raise BatonError(
                Reason.NO_CAPACITY, f"a store has at most {MAX_PREFETCHES} pulls", retry_after=1
            )
        store, reader = self._store, _PrefetchReader(self._store)
        now = store.clock()
        read = ReadRequest(
            reader,
            1,
            ids,
            now + min(seconds, MAX_SECONDS),
            instant=True,
            tenant=request.tenant,
        )
        read.set_sources(sources, store.store_id)
        self._running += 1
        try:
            store.waits.add(read, now)
            store.flush()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, MAX_SECONDS) + LEASE_SECONDS):
                    await reader.done.wait()
        finally:
            self._running -= 1
            store.waits.cancel(read)
            store.flush()
        held = {index for index, one in enumerate(ids) if store.table.get(one) is not None}
        return pb.PrefetchResponse(missing=sorted(set(range(len(ids))) - reader.came - held))


class _PrefetchReader:
    """A Reader that wants objects to be here, and not to read them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.came: set[int] = set()
        self.done = asyncio.Event()

    def answer(self, request: ReadRequest, answer: Answer) -> None:  # noqa: ARG002  # there is one
        for index, lease in answer.ready:
            self.came.add(index)
            self._store.waits.release(lease)
        if answer.done:
            self.done.set()

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        """None is held for so long."""
