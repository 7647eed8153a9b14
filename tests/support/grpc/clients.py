"""grpcio's two clients behind one interface, for tests that must pass with both."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.support.grpc.echo_service import METHODS, EchoStub

SECONDS = 20.0
OPTIONS = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))
KINDS = ("aio", "sync")


@dataclass(frozen=True, slots=True)
class Result:
    """A call as a client saw it."""

    messages: list[Any]
    code: grpc.StatusCode
    details: str
    initial: dict[str, Any]
    trailing: dict[str, Any]


class Client:
    """Calls methods of the echo service: `await client.call("Unary", message)`."""

    def __init__(self, kind: str, channel: Any) -> None:
        self._kind = kind
        self.stub: Any = EchoStub(channel)

    async def call(
        self,
        name: str,
        *requests: Message,
        timeout: float = SECONDS,
        metadata: Sequence[tuple[str, Any]] = (),
        compression: grpc.Compression | None = None,
    ) -> Result:
        """Call a method with some messages, and collect everything received."""
        method = getattr(self.stub, name)
        options = {"timeout": timeout, "metadata": metadata, "compression": compression}
        kind = METHODS[name][0]
        if self._kind == "sync":
            return await asyncio.to_thread(_sync, method, kind, requests, options)
        given = iter(requests) if kind.startswith("stream") else requests[0]
        call = method(given, **options)
        messages = []
        try:
            if kind.endswith("stream"):
                messages = [message async for message in call]
            else:
                messages = [await call]
        except grpc.aio.AioRpcError:
            pass  # the result says it
        return Result(
            messages,
            await call.code(),
            await call.details() or "",
            dict(await call.initial_metadata() or ()),
            dict(await call.trailing_metadata() or ()),
        )


def _sync(method: Any, kind: str, requests: Iterable[Message], options: dict[str, Any]) -> Result:
    given = iter(requests) if kind.startswith("stream") else next(iter(requests))
    messages: list[Any] = []
    if kind.endswith("stream"):
        call = method(given, **options)
        with suppress(grpc.RpcError):  # the result says it
            messages.extend(call)
    else:
        try:
            message, call = method.with_call(given, **options)
            messages = [message]
        except grpc.RpcError as error:
            call = error
    return Result(
        messages,
        call.code(),
        call.details() or "",
        dict(call.initial_metadata() or ()),
        dict(call.trailing_metadata() or ()),
    )


@asynccontextmanager
async def client(kind: str, address: str) -> AsyncIterator[Client]:
    """Open a channel of grpcio: `aio` or `sync`."""
    if kind == "aio":
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            yield Client(kind, channel)
    else:
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            yield Client(kind, channel)
