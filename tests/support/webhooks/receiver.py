"""A receiver of events over HTTP on this machine, which keeps what it gets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

import msgspec

from tests.support.network.listener import Serve, listening

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Received:
    """A request that a receiver got."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return str(msgspec.json.decode(self.body)["id"])


@dataclass
class Receiver:
    """What a receiver got, and what it answers."""

    answer: Callable[[Received], bytes] = lambda _: OK
    requests: list[Received] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (found := await self.receive(reader)) is not None:
            writer.write(self.answer(found))
            await writer.drain()

    async def receive(self, reader: asyncio.StreamReader) -> Received | None:
        """Return the next request of a connection, and keep it; None: there is none."""
        if not (head := await _head(reader)):
            return None
        length = int(head.get("content-length", "0"))
        found = Received(head, await reader.readexactly(length))
        self.requests.append(found)
        return found


async def _head(reader: asyncio.StreamReader) -> dict[str, str]:
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return {}
    pairs = (line.split(": ", 1) for line in data.decode().split("\r\n")[1:] if line)
    return {name.lower(): value for name, value in pairs}


@asynccontextmanager
async def receiving(
    answer: Callable[[Received], bytes] = lambda _: OK,
    tls: SSLContext | None = None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Receiver]:
    """Run a receiver until the block ends."""
    receiver = Receiver(answer, scheme="http" if tls is None else "https", host=host)
    options: dict[str, Any] = {} if tls is None else {"ssl": tls}
    serve: Serve = receiver.serve
    async with listening(serve, host, **options) as receiver.port:
        yield receiver
