"""Lookup: which objects this store holds, and of the others, which ones its peers hold."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.keys import pack
from baton.kv.objects import MAX_READ_KEYS, ObjectId
from services.kvstore.api.fields import objects_of, sources_of
from services.kvstore.reads.read_request import ReadSource
from services.kvstore.store import Store


class PeerLookups(Protocol):
    """Asks other stores what they hold."""

    async def lookup(self, source: ReadSource, request: pb.LookupRequest) -> bytes:
        """Return a byte per key, 1 if the source holds the object; nothing if it cannot tell."""


class Lookups:
    """Answers Lookup. Owned by the service, on the event loop.

    Args:
        store: this store.
        peers: asks other stores; None: only this one is.
    """

    def __init__(self, store: Store, peers: PeerLookups | None) -> None:
        self._store = store
        self._peers = peers

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Return which of the named objects exist here or in the request's sources.

        The sources are asked at the same time, for what is not here. They ask no one else.

        Raises:
            BatonError: the request is malformed.
        """
        ids = objects_of(request, MAX_READ_KEYS)
        sources = {s for s in sources_of(request.sources) if s.store_id != self._store.store_id}
        held = bytearray(self._held(ids))
        lacking = [index for index, found in enumerate(held) if not found]
        if not (self._peers is not None and sources and lacking):
            return pb.LookupResponse(held=bytes(held))
        asked = pb.LookupRequest(
            layout_id=request.layout_id,
            keys=pack([ids[index].key for index in lacking]),
            part=request.part,
        )
        answers = await asyncio.gather(*(self._peers.lookup(one, asked) for one in sources))
        for answer in answers:
            for index, found in zip(lacking, answer, strict=False):
                held[index] |= bool(found)
        return pb.LookupResponse(held=bytes(held))

    def _held(self, ids: Sequence[ObjectId]) -> list[bool]:
        table = self._store.table
        disk = self._store.disk.index if self._store.disk is not None else ()
        return [table.get(one) is not None or one in disk for one in ids]
