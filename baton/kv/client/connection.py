"""One attachment to a store: the arena, both streams, and the shutdown of all three."""

import asyncio
from dataclasses import replace
from functools import partial

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.arena.file import MappedArena
from baton.kv.client.attach import Attachment, StoreUnavailableError
from baton.kv.client.get_session import GetSession
from baton.kv.client.put_session import PutSession
from baton.kv.client.staging import StagingPool
from baton.settings.transports import GRPC, SHM


class StoreConnection:
    """A client's connection to one run of a store, until it breaks.

    Owned by the client's Reconnector, on the asyncio loop; fetches and reservations share it. Once
    broken it stays broken: every call that waits on it raises StoreUnavailableError.
    """

    def __init__(self, attachment: Attachment, staging_bytes: int) -> None:
        self._attachment = replace(attachment, arena=None)
        self.store_id = attachment.store_id
        self.epoch = attachment.epoch
        self.shm_domain = attachment.shm_domain
        self.arena: MappedArena | None = attachment.arena
        """The mapped arena until the connection closes; None from the start: bytes travel over
        gRPC.
        """
        self.lock = attachment.lock
        self.staging = StagingPool(staging_bytes)
        self.transport = GRPC if attachment.arena is None else SHM
        self.broken = asyncio.Event()
        self.reason = ""
        """Reason for which it broke."""
        self.gets = GetSession(attachment.get, mapped=self.mapped)
        self.puts = PutSession(attachment.put, self.fail)
        attachment.get.start_reader(self.gets.on_response, partial(self._on_closed, "Get"))
        attachment.put.start_reader(self.puts.on_response, partial(self._on_closed, "Put"))

    @property
    def mapped(self) -> bool:
        """Whether memory is shared with the store, or was until this was closed."""
        return self.transport == SHM

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Return which objects the store holds.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request.
        """
        return await self._attachment.lookup(request)

    def check(self) -> None:
        """Raise StoreUnavailableError if the connection is broken."""
        if self.broken.is_set():
            raise StoreUnavailableError(self.reason)

    def fail(self, reason: str) -> None:
        """Break the connection and wake every call that waits on it. A second call does nothing."""
        if self.broken.is_set():
            return
        self.reason = reason
        self.broken.set()
        self.gets.close()
        self.puts.close(reason)

    async def aclose(self) -> None:
        """Close the connection. Reservations that are still open keep the writer's lock until they
        close.

        The arena stays mapped only while views of it exist: a restarted store has memory of its
        own.
        """
        self.gets.report_reads()
        self.fail("closed")
        # Streams and sessions refer to each other, and to this connection, until garbage is
        # collected. That may take hours, in which the kernel keeps the memory of a mapped file.
        self.arena = None
        await self._attachment.aclose()

    def _on_closed(self, stream: str, error: BatonError) -> None:
        self.fail(f"the store's {stream} stream ended: {error}")
