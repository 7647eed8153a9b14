"""Attach a client to a store: open a session, prove shared memory, open the streams."""

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
"""Frames that may wait to be written to a stream; a stream with more is stuck and is closed."""
BULK_BYTES = 4 * 1024 * 1024
"""Bytes of objects that are sent on a stream and not yet received."""

GET_METHOD = "/baton.internal.v1.KvStoreService/Get"
PUT_METHOD = "/baton.internal.v1.KvStoreService/Put"

GetStream = ClientStream[pb.GetRequest, pb.GetResponse | bulk.ReadBulk]
PutStream = ClientStream[pb.PutRequest | Parts, pb.PutResponse]


class StoreUnavailableError(Exception):
    """The store cannot be reached now. KV is a cache: callers continue without it."""


@dataclass(frozen=True)
class Attachment:
    """Both streams of one session with a store. Closed by the connection that is made from it."""

    store_id: str
    epoch: str
    shm_domain: str
    """Memory domain of the store's arena; empty where this process does not share it."""
    arena: MappedArena | None
    """The mapped arena; None: bytes travel over gRPC."""
    lock: WriterLock | None
    """Lock that is held as long as this process may write to the arena."""
    get: GetStream
    put: PutStream
    channel: Channel
    open_seconds: float
    """Timeout in seconds of each step of attaching, and of a lookup."""
    closing: AsyncExitStack

    async def lookup(self, request: pb.LookupRequest) -> pb.LookupResponse:
        """Return which objects the store holds.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request.
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
        """Close the streams and the channel, and release the writer's lock."""
        await self.closing.aclose()


async def attach(
    address: str, client_id: str, incarnation: str, settings: KvSettings = KvSettings()
) -> Attachment:
    """Attach to the store at `host:port` over the best transport that works.

    Raises:
        StoreUnavailableError: it cannot be reached, rejects the client, or shares none of the
            transports.
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
                arena = None  # the file at that path is not the store's
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
    """Request a session from a store.

    Raises:
        BatonError: the store cannot be reached or rejects the request, or PROTOCOL_MISMATCH.
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
    """Open a Get stream, which `stack` closes later; return it and its transport.

    Raises:
        BatonError: the store rejects the stream.
        TimeoutError: the store does not respond.
    """
    call = channel.stream_stream(  # with its own encodings
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
        raise BatonError(Reason.INTERNAL, "the store sent data before a request")
    return stream, response.opened.transport


async def open_put(
    channel: Channel, opening: pb.Open, stack: AsyncExitStack, seconds: float
) -> tuple[PutStream, str]:
    """Open a Put stream in the way that `open_get` opens a Get stream."""
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
    """Map shared memory if it is available, and prove it in `opening`."""
    path = Path(session.arena_path)
    try:
        arena = MappedArena(path)
        lock = WriterLock(path.parent)
    except (ArenaFileError, OSError):
        return None, None  # not on the store's host, or not its user
    stack.callback(lock.release)
    opening.arena_secret = arena.header.secret
    opening.writer_lock = lock.path.name
    return arena, lock
