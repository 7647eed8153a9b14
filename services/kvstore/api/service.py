"""KvStoreService: the methods of a store."""

import asyncio
import hmac
from functools import partial
from typing import Any, TypeVar, cast

import grpc

from baton.errors import BatonError, Reason, invalid_field
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import (
    KvStoreServiceServicer,
    add_KvStoreServiceServicer_to_server,
)
from baton.kv.arena.writer_lock import WriterLockProbe
from baton.kv.wire import bulk
from baton.rpc.protocol import VERSION, check_version
from baton.rpc.server.call import ServerCall
from baton.rpc.streams.server import ServerStream
from baton.settings import StoreLimits
from baton.settings.transports import GRPC, SHM
from services.kvstore.api import admin
from services.kvstore.api.get import GetStream
from services.kvstore.api.lookup import Lookups, PeerLookups
from services.kvstore.api.put import PutStream
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.sessions import ClientSession, Sessions
from services.kvstore.store import Store

_BULK_BYTES = 4 * 1024 * 1024
"""Bytes of objects in flight on a stream."""
SERVICE_NAME = "baton.internal.v1.KvStoreService"
MAX_NAME = 256

Request = TypeVar("Request")


class _Methods:
    """Collects a service's handlers from the generated code, as a server would."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same handlers in another form."""

    def add_registered_method_handlers(self, _service: str, handlers: dict[str, Any]) -> None:
        self.handlers.update(handlers)


class KvStoreService(KvStoreServiceServicer):
    """Serves a store's clients and peers. Owned by the process, on the event loop.

    Args:
        store: the store.
        nixl: writes into the memory of stores on request.
        limits: what clients may hold, and their deadlines.
        peers: asked for objects that the store does not hold; None: no other store is.
    """

    def __init__(
        self,
        store: Store,
        nixl: NixlSender,
        limits: StoreLimits = StoreLimits(),
        peers: PeerLookups | None = None,
    ) -> None:
        self._store = store
        self._nixl = nixl
        self._limits = limits
        self._sessions = Sessions(limits.max_sessions)
        self._lookups = Lookups(store, peers)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        methods = _Methods()
        add_KvStoreServiceServicer_to_server(self, cast(grpc.aio.Server, methods))
        # The streams carry bulk data, which must not be copied into and out of messages.
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
                raise invalid_field(field, f"must have 1 to {MAX_NAME} characters")
        check_version(request.protocol_version, f"client {request.client_id}")
        arena = self._store.arena
        return pb.AttachResponse(
            session_id=self._sessions.open(ClientSession(request.client_id, request.incarnation)),
            store_id=self._store.store_id,
            epoch=self._store.log.epoch,
            arena_path=str(arena.path),
            arena_bytes=arena.header.file_bytes,
            shm_domain=arena.shm_domain,
            protocol_version=VERSION,
        )

    async def Put(  # type: ignore[override]  # noqa: N802  # it writes its responses itself
        self, _: object, context: ServerCall
    ) -> None:
        opening = await _first(context, self._limits.open_seconds)
        if not isinstance(opening, pb.PutRequest):
            raise invalid_field("open", "must be the first frame")
        _, shared = self._open(opening)
        writer = self._probe(opening.open.writer_lock) if shared else None
        stream = PutStream(self._store, writer)
        stream.send_queue.put(pb.PutResponse(opened=_opened(shared)))
        await self._serve(stream, context)

    async def Get(  # type: ignore[override]  # noqa: N802  # it writes its responses itself
        self, _: object, context: ServerCall
    ) -> None:
        session, shared = self._open(await _first(context, self._limits.open_seconds))
        stream = GetStream(
            self._store,
            self._limits,
            shared=shared,
            pushes=partial(self._nixl.stream, session),
        )
        stream.send_queue.put(pb.GetResponse(opened=_opened(shared)))
        await self._serve(stream, context)

    async def Lookup(  # noqa: N802
        self,
        request: pb.LookupRequest,
        context: Any,  # noqa: ARG002
    ) -> pb.LookupResponse:
        return await self._lookups.lookup(request)

    async def Stat(  # noqa: N802
        self,
        request: pb.StatRequest,  # noqa: ARG002
        context: Any,  # noqa: ARG002
    ) -> pb.StatResponse:
        return admin.stat(self._store)

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

    def _open(self, opening: pb.GetRequest | pb.PutRequest) -> tuple[ClientSession, bool]:
        """Return a stream's session, and whether the client shares memory with the store.

        Only the arena's secret proves the latter: a client with a wrong one sends bytes.

        Raises:
            BatonError: it is not an open frame, or names no session.
        """
        if not opening.HasField("open"):
            raise invalid_field("open", "must be the first frame")
        session = self._sessions.find(opening.open.session_id)
        if session is None:
            raise BatonError(Reason.NOT_FOUND, "unknown session: attach again", field="session_id")
        secret = self._store.arena.header.secret
        return session, hmac.compare_digest(opening.open.arena_secret, secret)

    def _probe(self, name: str) -> WriterLockProbe:
        try:
            return WriterLockProbe(self._store.arena.path.parent, name)
        except ValueError as error:
            raise BatonError(Reason.INVALID_FIELD, str(error), field="writer_lock") from error

    async def _serve(self, stream: PutStream | GetStream, context: ServerCall) -> None:
        server: ServerStream[Any] = ServerStream(
            stream.send_queue,
            stream.handle,
            stream.close,
            linger_seconds=self._limits.linger_seconds,
            buffer_bytes=_BULK_BYTES,
        )
        await server.serve(context)


async def _first(call: ServerCall, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            message = await call.read()
    except TimeoutError as error:
        raise BatonError(Reason.DEADLINE, "no open frame arrived in time") from error
    if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
        raise invalid_field("open", "must be the first frame")
    return message


def _opened(shared: bool) -> pb.Opened:
    return pb.Opened(transport=SHM if shared else GRPC)
