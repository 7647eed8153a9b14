"""Shared part of the minimal servers: a protocol that writes once per step and connection."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from bench.rpc.steps import Steps

STATUS = (b":status", b"200")
CONTENT_TYPE = (b"content-type", b"application/grpc")
GRPC_STATUS = (b"grpc-status", b"0")


def message(payload: bytes) -> bytes:
    """Return gRPC's framing of an uncompressed message."""
    return b"\0" + len(payload).to_bytes(4) + payload


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, steps: Steps, open_connections: set["Connection"]) -> None:
        self.steps = steps
        self._open = open_connections
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._open.add(self)
        self.opened()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self.received(data)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._open.discard(self)

    def flush(self) -> None:
        """Write pending output."""
        if data := self.pending():
            self.transport.write(data)

    @abstractmethod
    def opened(self) -> None: ...

    @abstractmethod
    def received(self, data: bytes) -> None: ...

    @abstractmethod
    def pending(self) -> bytes: ...


async def listen(steps: Steps, make: Callable[[Steps, set[Connection]], Connection]) -> int:
    """Serve such connections, and flush each of them after every step."""
    open_connections: set[Connection] = set()

    def flush() -> None:
        for connection in open_connections:
            connection.flush()

    steps.after = flush
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make(steps, open_connections), "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    return port
