"""The client side of a connection, frame by frame."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hpack import Decoder

from tests.support.clock import within
from tests.support.http2.frames import (
    ACK,
    END_STREAM,
    PREFACE,
    SETTINGS_ACK,
    Code,
    Frame,
    Kind,
    ping,
    settings,
    take,
)
from tests.support.http2.headers import call

SECONDS = 10.0


@dataclass(slots=True)
class Answer:
    """The frames received on a stream."""

    headers: list[dict[str, str]] = field(default_factory=list)
    """Header sections in order: the response's, and trailers."""
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: Code | None = None

    @property
    def status(self) -> str:
        """The HTTP status."""
        return self.headers[0].get(":status", "") if self.headers else ""

    @property
    def grpc_status(self) -> str:
        return self.headers[-1].get("grpc-status", "") if self.headers else ""

    @property
    def grpc_message(self) -> str:
        return self.headers[-1].get("grpc-message", "") if self.headers else ""

    @property
    def done(self) -> bool:
        return self.ended or self.reset is not None


class Peer:
    """One connection. It responds to nothing by itself, neither SETTINGS nor windows."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._decoder = Decoder(max_header_list_size=1 << 20)
        self._block = bytearray()
        self.frames: list[Frame] = []
        """All received frames."""
        self.answers: dict[int, Answer] = {}
        self.goaway: Frame | None = None
        self.closed = False

    def send(self, *parts: bytes) -> None:
        """Write; no effect on a connection that the server has closed."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(parts))

    async def drain(self) -> None:
        """Wait until most of what was written has been sent."""
        await self._writer.drain()

    def start(self, *pairs: tuple[int, int]) -> None:
        """Write the preface and the client's settings."""
        self.send(PREFACE, settings(*pairs))

    def answer(self, stream_id: int = 1) -> Answer:
        return self.answers.setdefault(stream_id, Answer())

    async def receive(self) -> Frame | None:
        """Return the next frame; None: the server closed the connection.

        Raises:
            TimeoutError: nothing within `SECONDS`; the text contains the latest frames.
        """
        while (got := take(self._buffer)) is None:
            try:
                async with within(SECONDS):
                    piece = await self._reader.read(1 << 16)
            except TimeoutError as error:
                raise TimeoutError(f"nothing came after {self.frames[-8:]}") from error
            except ConnectionError:
                piece = b""
            if not piece:
                self.closed = True
                return None
            self._buffer += piece
        self.frames.append(got)
        self._note(got)
        return got

    async def wait(self, kind: Kind, *, ack: bool = False) -> Frame:
        """Return the next frame of a kind; with `ack`, the next one that has the flag."""
        while (got := await self.receive()) is not None:
            if got.kind == kind and bool(got.flags & ACK) >= ack:
                return got
        raise ConnectionError(f"closed before {kind.name}: {self.frames[-8:]}")

    async def finished(self, stream_id: int = 1) -> Answer:
        """Return a stream's response once it has ended or was reset."""
        while not self.answer(stream_id).done:
            if await self.receive() is None:
                raise ConnectionError(f"closed before an answer: {self.frames[-8:]}")
        return self.answer(stream_id)

    async def until_closed(self) -> Frame | None:
        """Return the GOAWAY that preceded the closing of the connection by the server, if any."""
        while await self.receive() is not None:
            pass
        return self.goaway

    async def round_trip(self) -> None:
        """Return when the server has handled everything sent before."""
        self.send(ping(b"roundtri"))
        while (await self.wait(Kind.PING, ack=True)).payload != b"roundtri":
            pass

    async def call(self, stream_id: int, path: str, payload: bytes = b"") -> Answer:
        """Call with one message and return the response."""
        self.send(call(stream_id, path, payload))
        return await self.finished(stream_id)

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Drop the connection with RST, without a GOAWAY."""
        self._writer.transport.abort()

    def _note(self, got: Frame) -> None:
        if got.kind == Kind.GOAWAY:
            self.goaway = got
        elif got.kind == Kind.RST_STREAM:
            self.answer(got.stream_id).reset = got.error
        elif got.kind in (Kind.HEADERS, Kind.CONTINUATION):
            self._block += got.payload
            if got.flags & 0x4:
                fields = self._decoder.decode(bytes(self._block), raw=True)
                self._block.clear()
                section = {name.decode(): value.decode("latin-1") for name, value in fields}
                self.answer(got.stream_id).headers.append(section)
        elif got.kind == Kind.DATA:
            self.answer(got.stream_id).body += got.payload
        if got.kind in (Kind.HEADERS, Kind.DATA) and got.flags & END_STREAM:
            self.answer(got.stream_id).ended = True


@asynccontextmanager
async def connect(address: str, *, start: bool = True) -> AsyncIterator[Peer]:
    """Connect; with `start`, settings are exchanged before the block runs."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    peer = Peer(reader, writer)
    try:
        if start:
            peer.start()
            await peer.wait(Kind.SETTINGS)
            peer.send(SETTINGS_ACK)
        yield peer
    finally:
        peer.abort()
