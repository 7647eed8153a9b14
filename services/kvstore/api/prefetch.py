"""Objects brought from other stores although nobody here asks for them yet: hot prefixes spread.

Whoever sees that many want the same (a router does) names the objects and who holds them. They are
fetched like those that a reader wants, and kept like all others: hints that were wrong age and go.
"""

import asyncio
from contextlib import suppress

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.objects import MAX_TENANT_BYTES, parse_object_ids
from services.kvstore.api.get import sources_of
from services.kvstore.memory.slot import Lease
from services.kvstore.reads.read_request import Answer, Want
from services.kvstore.store import Store

MAX_KEYS = 4096
"""In one Pull."""
MAX_PULLS = 16
"""At a time; a hint more is refused, for readers come first."""
MAX_SECONDS = 60.0
LEASE_SECONDS = 0.5
"""Beyond its time, how long a pull may wait for room to lease what has come: it is here then."""


class Pulls:
    """The pulls of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running = 0

    async def run(self, request: pb.PullRequest, seconds: float) -> pb.PullResponse:
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
        if self._running >= MAX_PULLS:
            raise BatonError(
                Reason.NO_CAPACITY, f"a store has at most {MAX_PULLS} pulls", retry_after=1
            )
        store, puller = self._store, _Puller(self._store)
        now = store.clock()
        want = Want(
            puller,
            1,
            ids,
            now + min(seconds, MAX_SECONDS),
            instant=True,
            tenant=request.tenant,
        )
        want.set_sources(sources, store.store_id)
        self._running += 1
        try:
            store.waits.add(want, now)
            store.settle()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, MAX_SECONDS) + LEASE_SECONDS):
                    await puller.done.wait()
        finally:
            self._running -= 1
            store.waits.cancel(want)
            store.settle()
        held = {index for index, one in enumerate(ids) if store.table.get(one) is not None}
        return pb.PullResponse(missing=sorted(set(range(len(ids))) - puller.came - held))


class _Puller:
    """An Asker that wants objects to be here, and not to read them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.came: set[int] = set()
        self.done = asyncio.Event()

    def answer(self, want: Want, answer: Answer) -> None:  # noqa: ARG002  # there is one
        for index, lease in answer.ready:
            self.came.add(index)
            self._store.waits.release(lease)
        if answer.done:
            self.done.set()

    def lapsed(self, want: Want, lease: Lease) -> None:
        """None is held for so long."""
