"""A client's HTTP connection, on a transport that is a list."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from baton.settings import HttpSettings
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.protocol.connection import HttpServerConnection, connection_of
from services.frontend.http.responses import EventStream, send_json
from tests.support.clock import within

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class Transport(asyncio.Transport):
    """Notes each write; takes none once it is closed, as uvloop's."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        return 0

    def resume_reading(self) -> None:
        """It never stops."""

    def close(self) -> None:
        """Nothing is open."""


async def two_events(scope: Scope, _: Receive, send: Send) -> None:
    stream = EventStream(connection_of(scope), send)
    assert stream.push(b"") is False
    for event in (b"one", b"two"):
        if stream.push(event):
            await stream.begin()
    await stream.end(b"end")


def connect(app: Any = two_events) -> tuple[HttpServerConnection, Transport]:
    kind = HttpServerConnection.limited(lambda _: b"", HttpSettings(), 10.0)
    config = uvicorn.Config(app, http=kind, log_config=None, proxy_headers=False)
    config.load()
    connection, transport = kind(config, ServerState(), {}), Transport()
    connection.connection_made(transport)
    return connection, transport


async def answered(transport: Transport) -> None:
    async with within(10):
        while not (transport.written and transport.written[-1].endswith(b"0\r\n\r\n")):
            await asyncio.sleep(0)


async def test_a_streams_head_and_first_event_are_one_write() -> None:
    connection, transport = connect()
    connection.data_received(GET)
    await answered(transport)
    first, second, end = transport.written
    head, _, body = first.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked" in head
    assert (body, second) == (b"3\r\none\r\n", b"3\r\ntwo\r\n")
    assert end == b"3\r\nend\r\n0\r\n\r\n"
    connection.connection_lost(None)


async def whole(_: Scope, __: Receive, send: Send) -> None:
    await send_json(send, {"a": 1})


async def test_a_whole_response_is_one_write() -> None:
    for method, body in ((b"GET", b'{"a":1}'), (b"HEAD", b"")):
        connection, transport = connect(whole)
        connection.data_received(GET.replace(b"GET", method))
        async with within(10):
            while not transport.written:
                await asyncio.sleep(0)
        connection.connection_lost(None)
        (written,) = transport.written
        head, _, sent = written.partition(b"\r\n\r\n")
        assert b"content-length: 7" in head
        assert sent == body


async def test_a_stream_begins_once_its_client_reads_what_came_before() -> None:
    connection, transport = connect()
    connection.pause_writing()
    connection.data_received(GET)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not transport.written
    connection.resume_writing()
    await answered(transport)
    assert b"".join(transport.written).count(b"one") == 1
    connection.connection_lost(None)


async def test_what_comes_for_a_client_that_left_before_the_first_event_is_dropped() -> None:
    streams: list[EventStream] = []

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        streams.append(EventStream(connection_of(scope), send))
        while (await receive())["type"] != "http.disconnect":
            pass
        streams.append(streams[0])

    connection, transport = connect(wait)
    connection.data_received(GET)
    async with within(10):
        while not streams:
            await asyncio.sleep(0)
    transport.closed = True
    for lost in (False, True):
        if lost:
            connection.connection_lost(None)
        assert streams[0].push(b"one") is True
    await streams[0].begin()
    assert transport.written == []
    async with within(10):
        while len(streams) < 2:
            await asyncio.sleep(0)
