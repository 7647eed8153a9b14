"""A server with one method of each kind, to call over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from baton.rpc.channels import open_channel
from baton.rpc.server.guard import OnCallEnd
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings

SERVICE = "test.Echo"


@dataclass
class Echo:
    """Bytes in, bytes out; `act` decides what each handler does with its first message."""

    act: Callable[[bytes, Any], Awaitable[bytes]]
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a handler that yields was left."""

    async def unary_unary(self, request: bytes, context: Any) -> bytes:
        return await self.act(request, context)

    async def unary_stream(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        try:
            yield await self.act(request, context)
            yield b"second"
        finally:
            self.closed.set()

    async def unary_writes(self, request: bytes, context: Any) -> None:
        await context.write(await self.act(request, context))

    async def stream_unary(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        answer = b""
        async for request in requests:
            answer = await self.act(request, context)
        return answer

    async def stream_stream(
        self, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        try:
            async for request in requests:
                yield await self.act(request, context)
        finally:
            self.closed.set()

    def register(self, server: grpc.aio.Server) -> None:
        handlers = {
            "UnaryUnary": grpc.unary_unary_rpc_method_handler(self.unary_unary),
            "UnaryStream": grpc.unary_stream_rpc_method_handler(self.unary_stream),
            "UnaryWrites": grpc.unary_stream_rpc_method_handler(self.unary_writes),
            "StreamUnary": grpc.stream_unary_rpc_method_handler(self.stream_unary),
            "StreamStream": grpc.stream_stream_rpc_method_handler(self.stream_stream),
        }
        generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
        server.add_generic_rpc_handlers((generic,))


class Caller:
    """Calls any of the five by name and answers what came, in a list."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def __call__(
        self,
        method: str,
        *requests: bytes,
        metadata: tuple[tuple[str, str], ...] = (),
        timeout: float = 5,
    ) -> list[bytes]:
        path = f"/{SERVICE}/{method}"
        options: Any = {"timeout": timeout, "metadata": metadata}

        async def several() -> AsyncIterator[bytes]:
            for request in requests:
                yield request

        if method == "UnaryUnary":
            return [await self.channel.unary_unary(path)(requests[0], **options)]
        if method == "StreamUnary":
            return [await self.channel.stream_unary(path)(several(), **options)]
        if method == "StreamStream":
            call = self.channel.stream_stream(path)(several(), **options)
        else:
            call = self.channel.unary_stream(path)(requests[0], **options)
        return [response async for response in call]


Serve = Callable[..., Any]


@pytest.fixture
def serve() -> Serve:
    """`async with serve(act) as (server, echo, call)`."""

    @asynccontextmanager
    async def run(
        act: Callable[[bytes, Any], Awaitable[bytes]],
        *,
        on_call_end: OnCallEnd | None = None,
        **settings: Any,
    ) -> AsyncIterator[tuple[Server, Echo, Caller]]:
        echo = Echo(act)
        async with Server(
            GrpcSettings(**settings), "test", incarnation="i-1", on_call_end=on_call_end
        ) as server:
            server.add(echo.register, SERVICE)
            await server.start()
            channel = open_channel(server.address)
            try:
                yield server, echo, Caller(channel)
            finally:
                await channel.close()

    return run
