"""A gRPC service with each kind of call, on well-known messages: clients need no generated code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import ListValue
from google.protobuf.wrappers_pb2 import BytesValue, UInt64Value
from google.rpc.status_pb2 import Status

from baton.rpc.server.server import Server
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import GrpcSettings, LivenessSettings

SERVICE = "baton.test.Echo"
INITIAL = "x-initial"
TRAILING = "x-trailing-bin"
STATUS_DETAILS = "grpc-status-details-bin"
METHODS: dict[str, tuple[str, type[Any], type[Any]]] = {
    "Empty": ("unary_unary", Empty, Empty),
    "Unary": ("unary_unary", BytesValue, BytesValue),
    "Collect": ("stream_unary", BytesValue, UInt64Value),
    "Produce": ("unary_stream", ListValue, BytesValue),
    "PingPong": ("stream_stream", UInt64Value, BytesValue),
    "Fail": ("unary_unary", Status, Empty),
    "Sleep": ("unary_unary", Duration, Empty),
    "Hold": ("unary_stream", Empty, Empty),
    "Stall": ("stream_unary", BytesValue, Empty),
    "Flood": ("unary_stream", UInt64Value, BytesValue),
}
"""Name: kind, request and response."""
EMPTY = f"/{SERVICE}/Empty"
UNARY = f"/{SERVICE}/Unary"
COLLECT = f"/{SERVICE}/Collect"
PRODUCE = f"/{SERVICE}/Produce"
HOLD = f"/{SERVICE}/Hold"
STALL = f"/{SERVICE}/Stall"
FLOOD = f"/{SERVICE}/Flood"


class EchoService:
    """Echoes the messages that it receives."""

    def __init__(self) -> None:
        self.began = self.ended = 0
        """Number of calls of `Sleep`, `Hold`, `Stall` and `Flood`, whatever ended them."""

    @property
    def active(self) -> int:
        return self.began - self.ended

    async def Empty(self, request: Empty, context: Any) -> Empty:  # noqa: N802
        return request

    async def Unary(self, request: BytesValue, context: Any) -> BytesValue:  # noqa: N802
        """Echo the message, and the metadata whose keys are INITIAL and TRAILING."""
        given = dict(context.invocation_metadata())
        if INITIAL in given:
            await context.send_initial_metadata(((INITIAL, given[INITIAL]),))
        if TRAILING in given:
            context.set_trailing_metadata(((TRAILING, given[TRAILING]),))
        return request

    async def Collect(  # noqa: N802
        self, requests: AsyncIterator[BytesValue], context: Any
    ) -> UInt64Value:
        """Return the bytes of all messages."""
        return UInt64Value(value=sum([len(request.value) async for request in requests]))

    async def Produce(  # noqa: N802
        self, request: ListValue, context: Any
    ) -> AsyncIterator[BytesValue]:
        """Yield messages of the requested sizes."""
        for size in request:
            yield BytesValue(value=bytes(int(size)))

    async def PingPong(  # noqa: N802
        self, requests: AsyncIterator[UInt64Value], context: Any
    ) -> AsyncIterator[BytesValue]:
        """Answer each size with a message of that size."""
        async for request in requests:
            yield BytesValue(value=bytes(request.value))

    async def Fail(self, request: Status, context: Any) -> Empty:  # noqa: N802
        """End with a code, its message and details, if there are any."""
        if request.details:
            context.set_trailing_metadata(((STATUS_DETAILS, request.SerializeToString()),))
        codes = {code.value[0]: code for code in grpc.StatusCode}
        await context.abort(codes[request.code], request.message)
        raise AssertionError("abort raises")

    async def Sleep(self, request: Duration, context: Any) -> Empty:  # noqa: N802
        async with self._counted():
            await asyncio.sleep(request.ToNanoseconds() / 1e9)
            return Empty()

    async def Hold(self, request: Empty, context: Any) -> AsyncIterator[Empty]:  # noqa: N802
        """Yield one message, and never end."""
        async with self._counted():
            yield Empty()
            await asyncio.Event().wait()

    async def Stall(  # noqa: N802
        self, requests: AsyncIterator[BytesValue], context: Any
    ) -> Empty:
        """Read nothing, and never end."""
        async with self._counted():
            await asyncio.Event().wait()
            return Empty()

    async def Flood(self, request: UInt64Value, context: Any) -> AsyncIterator[BytesValue]:  # noqa: N802
        """Yield messages of 16 KiB as fast as the client reads them, up to a number of them."""
        async with self._counted():
            for _ in range(request.value):
                yield BytesValue(value=bytes(16384))

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self.began += 1
        try:
            yield
        finally:
            self.ended += 1

    def register(self, server: Any) -> None:
        """Add the service, as generated code does."""
        handlers = {}
        for name, (kind, request, response) in METHODS.items():
            make = getattr(grpc, f"{kind}_rpc_method_handler")
            handlers[name] = make(
                getattr(self, name), request.FromString, response.SerializeToString
            )
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.add_generic_rpc_handlers((generic,))
        server.add_registered_method_handlers(SERVICE, handlers)


class EchoStub:
    """Its client, on a sync or an asyncio channel: `stub.Unary(BytesValue(value=b"x"))`."""

    def __init__(self, channel: Any) -> None:
        for name, (kind, request, response) in METHODS.items():
            method = getattr(channel, kind)(
                f"/{SERVICE}/{name}", request.SerializeToString, response.FromString
            )
            setattr(self, name, method)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@asynccontextmanager
async def serving(
    settings: GrpcSettings | None = None,
    stall_seconds: float = 30.0,
    liveness: LivenessSettings | None = None,
    addresses: ClientAddresses | None = None,
    unfinished: Unfinished | None = None,
) -> AsyncIterator[tuple[EchoService, str]]:
    """Serve it in this process; yield the service and `host:port`."""
    service = EchoService()
    async with Server(
        settings or GrpcSettings(),
        "test",
        stall_seconds=stall_seconds,
        liveness=liveness,
        addresses=addresses,
        unfinished=unfinished,
    ) as server:
        server.add(service.register, SERVICE)
        await server.start()
        server.set_ready(True)
        yield service, server.address
