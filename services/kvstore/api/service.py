"""KvStoreService: opens streams, reads their frames, sends their answers."""

import asyncio
import hmac
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import (
    KvStoreServiceServicer,
    add_KvStoreServiceServicer_to_server,
)
from baton.kv.arena.writer_lock import WriterLockProbe
from baton.kv.objects import MAX_READ_KEYS, parse_object_ids
from baton.kv.registry import GRPC, SHM
from baton.kv.wire import bulk
from baton.telemetry.logs import get_logger
from services.kvstore.api import admin
from services.kvstore.api.get import GetStream
from services.kvstore.api.prefetch import Prefetches
from services.kvstore.api.put import PutStream
from services.kvstore.api.send_queue import SendQueue
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.sessions import Session, Sessions
from services.kvstore.store import Store

log = get_logger(__name__)

SERVICE_NAME = "baton.internal.v1.KvStoreService"
OPEN_SECONDS = 10.0
"""How long a new stream may take to say who it is."""
MAX_NAME = 256
GONE_SECONDS = 5.0
"""How long a client that says nothing more may take to read its last answers."""
READER_SECONDS = 1.0
"""A read that does not notice that it is cancelled must not keep the handler."""

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response")


class _Stream(Protocol[Request, Response]):
    send_queue: SendQueue[Response]

    def handle(self, frame: Request) -> None: ...

    def close(self) -> None: ...


class _Methods:
    """Takes a service's handlers from the generated code, as a server would."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers in another shape."""

    def add_registered_method_handlers(self, _service: str, handlers: dict[str, Any]) -> None:
        self.handlers.update(handlers)


class KvStoreService(KvStoreServiceServicer):
    """See the module's text. `gone_seconds` as GONE_SECONDS."""

    def __init__(
        self, store: Store, pushes: NixlSender, gone_seconds: float = GONE_SECONDS
    ) -> None:
        self._store = store
        self._gone_seconds = gone_seconds
        self._pushes = pushes
        self._prefetches = Prefetches(store)
        self._sessions = Sessions()

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        methods = _Methods()
        add_KvStoreServiceServicer_to_server(self, cast(grpc.aio.Server, methods))
        # The streams carry bulk data, which is not to be copied into messages and out of them.
        methods.handlers["Put"] = grpc.stream_stream_rpc_method_handler(
            self.Put,
            request_deserializer=bulk.decode_put_request,
            response_serializer=pb.PutResponse.SerializeToString,
        )
        methods.handlers["Get"] = grpc.stream_stream_rpc_method_handler(
            self.Get,
            request_deserializer=pb.GetRequest.FromString,
            response_serializer=bulk.encode,
        )
        handler = grpc.method_handlers_generic_handler(SERVICE_NAME, methods.handlers)
        server.add_generic_rpc_handlers((handler,))

    async def Attach(  # noqa: N802
        self,
        request: pb.AttachRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.AttachResponse:
        for field in ("client_id", "incarnation"):
            if not 0 < len(getattr(request, field)) <= MAX_NAME:
                raise BatonError(
                    Reason.INVALID_FIELD, f"{field} has 1 to {MAX_NAME} characters", field=field
                )
        arena = self._store.arena
        return pb.AttachResponse(
            session_id=self._sessions.open(Session(request.client_id, request.incarnation)),
            store_id=self._store.store_id,
            epoch=self._store.log.epoch,
            arena_path=str(arena.path),
            arena_bytes=arena.header.file_bytes,
            shm_domain=arena.shm_domain,
        )

    async def Put(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.PutRequest | bulk.WriteBulk],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.PutResponse]:
        opening = await _first(request_iterator)
        if not isinstance(opening, pb.PutRequest):
            raise BatonError(Reason.INVALID_FIELD, "the first frame is open", field="open")
        shared = self._check(opening.open, opening.HasField("open"))
        writer = self._watch(opening.open.writer_lock) if shared else None
        stream = PutStream(self._store, writer)
        stream.send_queue.put(pb.PutResponse(opened=_opened(shared)))
        async with aclosing(self._serve(request_iterator, stream)) as answers:
            async for frame in answers:
                yield frame

    async def Get(  # type: ignore[override]  # noqa: N802  # bulk frames are bytes already
        self,
        request_iterator: AsyncIterator[pb.GetRequest],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[pb.GetResponse | bytes]:
        opening = await _first(request_iterator)
        shared = self._check(opening.open, opening.HasField("open"))
        session = self._sessions.find(opening.open.session_id)
        assert session is not None  # checked just now
        stream = GetStream(self._store, shared=shared, pushes=partial(self._pushes.stream, session))
        stream.send_queue.put(pb.GetResponse(opened=_opened(shared)))
        async with aclosing(self._serve(request_iterator, stream)) as answers:
            async for frame in answers:
                yield frame

    async def Lookup(  # noqa: N802
        self,
        request: pb.LookupRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.LookupResponse:
        try:
            ids = parse_object_ids(request.layout_id, request.keys, request.part, MAX_READ_KEYS)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="keys") from error
        table = self._store.table
        disk = self._store.disk.index if self._store.disk is not None else ()
        return pb.LookupResponse(
            held=bytes(table.get(one) is not None or one in disk for one in ids)
        )

    async def Stat(  # noqa: N802
        self,
        request: pb.StatRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> pb.StatResponse:
        return admin.stat(self._store)

    async def Prefetch(  # noqa: N802
        self,
        request: pb.PrefetchRequest,
        context: Any,
    ) -> pb.PrefetchResponse:
        left = context.time_remaining()
        # A second less than the caller waits: it is told what did not come.
        return await self._prefetches.run(request, math.inf if left is None else max(0.0, left - 1))

    async def List(  # noqa: N802
        self,
        request: pb.ListRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.ListResponse:
        return admin.list_objects(self._store, request)

    async def Drop(  # noqa: N802
        self,
        request: pb.DropRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.DropResponse:
        return admin.drop_objects(self._store, request)

    def _check(self, opening: pb.Open, is_open: bool) -> bool:
        """Whether the client shares memory with the store; a wrong secret proves nothing."""
        if not is_open:
            raise BatonError(Reason.INVALID_FIELD, "the first frame is open", field="open")
        if self._sessions.find(opening.session_id) is None:
            raise BatonError(Reason.NOT_FOUND, "no such session: attach again", field="session_id")
        return hmac.compare_digest(opening.arena_secret, self._store.arena.header.secret)

    def _watch(self, name: str) -> WriterLockProbe:
        try:
            return WriterLockProbe(self._store.arena.path.parent, name)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="writer_lock") from error

    async def _serve(
        self, requests: AsyncIterator[Request], stream: _Stream[Request, Response]
    ) -> AsyncGenerator[Response]:
        """Answers while a task reads; whatever ends first, the stream gives everything back.

        Not only here: a client that vanishes while it is written to may leave the handler in that
        write. Reads end then too, so that they also close the stream, a moment later.
        """
        send_queue = stream.send_queue
        served = _Served(stream)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                send_queue.end(task.exception())
            asyncio.get_running_loop().call_later(self._gone_seconds, served.close)

        reading = asyncio.create_task(self._read(requests, served))
        reading.add_done_callback(ended)
        try:
            async with aclosing(send_queue.frames()) as answers:
                async for frame in answers:
                    yield frame
        finally:
            served.close()
            reading.cancel()
            await asyncio.wait([reading], timeout=READER_SECONDS)

    async def _read(self, requests: AsyncIterator[Request], served: "_Served[Request]") -> None:
        async for frame in requests:
            if served.closed:
                return
            served.handle(frame)
            self._store.flush()


class _Served(Generic[Request]):
    """A stream that is closed exactly once, and handles nothing afterwards."""

    def __init__(self, stream: _Stream[Request, Any]) -> None:
        self._stream = stream
        self.handle = stream.handle
        self.closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()


async def _first(requests: AsyncIterator[Response]) -> Response:
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            return await anext(requests)
    except TimeoutError as error:
        raise BatonError(Reason.DEADLINE, "no open frame came in time") from error
    except StopAsyncIteration as error:
        raise BatonError(Reason.INVALID_FIELD, "the first frame is open", field="open") from error


def _opened(shared: bool) -> pb.Opened:
    return pb.Opened(transport=SHM if shared else GRPC)
