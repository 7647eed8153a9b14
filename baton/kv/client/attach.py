"""How a client attaches to a store: get a session, prove shared memory, open streams."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.arena.file import ArenaFileError, MappedArena
from baton.kv.arena.writer_lock import WriterLock
from baton.kv.wire import bulk
from baton.rpc.channel.channel import Channel
from baton.rpc.protocol import VERSION, check_version
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.wire.messages import Parts
from baton.settings import KvSettings
from baton.settings.transports import GRPC, SHM

MAX_QUEUED = 65_536
"""Frames that may wait to be written to a stream; one with more is stuck and is closed."""
BULK_BYTES = 4 * 1024 * 1024
"""Of objects that are sent and not taken yet, on a stream."""

GET_METHOD = "/baton.internal.v1.KvStoreService/Get"
PUT_METHOD = "/baton.internal.v1.KvStoreService/Put"

GetStream = ClientStream[pb.GetRequest, pb.GetResponse | bulk.ReadBulk]
PutStream = ClientStream[pb.PutRequest | Parts, pb.PutResponse]


class StoreUnavailableError(Exception):
    """The store cannot be reached now. KV is a cache: callers go on without it."""


@dataclass(frozen=True)
class Attachment:
    """Both streams of one session with a store. Closed by the connection that is made of it."""

    store_id: str
    epoch: str
    shm_domain: str
    """Of the store's arena; empty where this process does not share it."""
    arena: MappedArena | None
    """None: bytes travel over gRPC."""
    lock: WriterLock | None
    """Held as long as this process may write to the arena."""
    get: GetStream
    put: PutStream
    channel: Channel
    open_seconds: float
    """For each step of attaching, and a lookup."""
    closing: AsyncExitStack

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Ask which objects are there.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: it refuses.
        """
        try:
            found: pb.LookupResponse = await self.channel.stub(KvStoreServiceStub).Lookup(
                request, timeout=self.open_seconds
            )
            return found
        except BatonError as refusal:
            if refusal.reason is Reason.INVALID_FIELD:
                raise
            raise StoreUnavailableError(f"the lookup failed: {refusal}") from refusal

    async def aclose(self) -> None:
        """End streams and channel, and release the writer's lock."""
        await self.closing.aclose()


async def attach(
    address: str, client_id: str, incarnation: str, settings: KvSettings = KvSettings()
) -> Attachment:
    """Attach to the store at `host:port` with the best of the transports that works.

    Raises:
        StoreUnavailableError: it cannot be reached, refuses, or shares none of the transports.
    """
    transports, seconds = settings.transports, settings.open_seconds
    async with AsyncExitStack() as stack:
        try:
            channel = Channel(address)
            stack.push_async_callback(channel.close)
            session = await open_session(channel, client_id, incarnation, seconds)
            opening = pb.Open(session_id=session.session_id)
            arena, lock = _map(session, opening, stack) if SHM in transports else (None, None)
            get, readable = await open_get(channel, opening, stack, seconds)
            put, writable = await open_put(channel, opening, stack, seconds)
            if {readable, writable} != {SHM}:
                arena = None  # the file at that path is another one than the store's
            if (GRPC if arena is None else SHM) not in transports:
                raise BatonError(Reason.UNAVAILABLE, "the store shares no memory with this process")
        except (BatonError, TimeoutError, OSError) as error:
            raise StoreUnavailableError(
                f"cannot attach to the store at {address}: {error}"
            ) from error
        return Attachment(
            store_id=session.store_id,
            epoch=session.epoch,
            shm_domain=session.shm_domain if arena is not None else "",
            arena=arena,
            lock=lock,
            get=get,
            put=put,
            channel=channel,
            open_seconds=seconds,
            closing=stack.pop_all(),
        )


async def open_session(
    channel: Channel, client_id: str, incarnation: str, seconds: float
) -> pb.AttachResponse:
    """Ask a store for a session.

    Raises:
        BatonError: it cannot be reached or refuses, or PROTOCOL_MISMATCH.
    """
    request = pb.AttachRequest(
        client_id=client_id, incarnation=incarnation, protocol_version=VERSION
    )
    session: pb.AttachResponse = await channel.stub(KvStoreServiceStub).Attach(
        request, timeout=seconds
    )
    check_version(session.protocol_version, f"store {session.store_id}")
    return session


async def open_get(
    channel: Channel, opening: pb.Open, stack: AsyncExitStack, seconds: float
) -> tuple[GetStream, str]:
    """Open a Get stream, which `stack` then closes; return it and its transport.

    Raises:
        BatonError: the store refuses.
        TimeoutError: it does not respond.
    """
    call = channel.stream_stream(  # with encodings of its own
        GET_METHOD,
        request_serializer=pb.GetRequest.SerializeToString,
        response_deserializer=bulk.decode_get_response,
    )
    stream: GetStream = ClientStream(call(), SendQueue(limit=MAX_QUEUED), buffer_bytes=BULK_BYTES)
    stack.callback(stream.close)
    stream.send(pb.GetRequest(open=opening))
    async with asyncio.timeout(seconds):
        response = await stream.read()
    if not isinstance(response, pb.GetResponse):
        raise BatonError(Reason.INTERNAL, "the store sent data before it was asked for any")
    return stream, response.opened.transport


async def open_put(
    channel: Channel, opening: pb.Open, stack: AsyncExitStack, seconds: float
) -> tuple[PutStream, str]:
    """Open a Put stream, as `open_get` does a Get stream."""
    call = channel.stream_stream(
        PUT_METHOD,
        request_serializer=bulk.encode,
        response_deserializer=pb.PutResponse.FromString,
    )
    stream: PutStream = ClientStream(call(), SendQueue(limit=MAX_QUEUED), buffer_bytes=BULK_BYTES)
    stack.callback(stream.close)
    stream.send(pb.PutRequest(open=opening))
    async with asyncio.timeout(seconds):
        return stream, (await stream.read()).opened.transport


def _map(
    session: pb.AttachResponse, opening: pb.Open, stack: AsyncExitStack
) -> tuple[MappedArena | None, WriterLock | None]:
    """Take shared memory if it can be had, and prove it in `opening`."""
    path = Path(session.arena_path)
    try:
        arena = MappedArena(path)
        lock = WriterLock(path.parent)
    except (ArenaFileError, OSError):
        return None, None  # not the store's host, or not its user
    stack.callback(lock.release)
    opening.arena_secret = arena.header.secret
    opening.writer_lock = lock.path.name
    return arena, lock
