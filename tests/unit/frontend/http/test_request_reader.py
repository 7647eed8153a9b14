"""What is wrong with a request, or late, ends its connection behind the answers before it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import uvicorn
from uvicorn.server import ServerState

from baton.errors import BatonError
from baton.settings import HttpSettings
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.body import read_json
from services.frontend.http.protocol.connection import HttpServerConnection, connection_of
from services.frontend.http.protocol.request_reader import MAX_PIPELINED
from services.frontend.http.responses import EventStream, send_error, send_json
from tests.support.clock import within

GET = b"GET /whole HTTP/1.1\r\nhost: x\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
SETTINGS = HttpSettings(
    header_timeout_seconds=0.3, body_timeout_seconds=5, max_head_fields=16, max_head_bytes=4096
)
Open = Callable[[], Awaitable["Client"]]


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, data: bytes) -> bytes:
        """Send bytes and return all that comes until the connection ends."""
        self.writer.write(data)
        return await self.rest()

    async def rest(self) -> bytes:
        async with within(10):
            return await self.reader.read()


@dataclass
class Application:
    """Answers, or streams for as long as the test wants."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stream":
            stream = EventStream(connection_of(scope), send)
            stream.push(b"begun ")
            await self.go_on.wait()
            await stream.end(b"ended")
        elif scope["path"] == "/body":
            try:
                data = await read_json(scope, receive, 100_000, 5.0)
            except BatonError as error:
                await send_error(send, error)
            else:
                await send_json(send, len(data))
        else:
            await send_json(send, [])


@pytest.fixture
async def application() -> Application:
    return Application()


@pytest.fixture
def settings() -> HttpSettings:
    return SETTINGS


@pytest.fixture
async def connect(application: Application, settings: HttpSettings) -> AsyncIterator[Open]:
    def refuse(error: BatonError) -> bytes:
        return b"HTTP/1.1 %d refused\r\n\r\n%b" % (
            error.http_status,
            json.dumps(error.to_openai()).encode(),
        )

    kind = HttpServerConnection.limited(refuse, settings, 10.0)
    config = uvicorn.Config(application, http=kind, log_config=None, proxy_headers=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    clients: list[Client] = []

    async def opened() -> Client:
        port = server.sockets[0].getsockname()[1]
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return clients[-1]

    try:
        yield opened
    finally:
        for client in clients:
            client.writer.close()
        server.close()
        await server.wait_closed()


LATER = {
    "half a head": b"GET /whole HTTP/1.1\r\nho",
    "half a body": b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "too many fields": b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a: b\r\n" * 20 + b"\r\n",
    "too long a head": b"GET / HTTP/1.1\r\nhost: x\r\na: %b\r\n\r\n" % (b"b" * 5_000),
    "an empty line": b"\r\n",
}


# Of a pause a quarter second counts: a starved machine must not use up the rest of the time.
@pytest.mark.parametrize("settings", [HttpSettings(header_timeout_seconds=1.5)])
async def test_time_in_which_this_process_stood_still_does_not_count(
    connect: Open, settings: HttpSettings
) -> None:
    client = await connect()
    client.writer.write(GET[:20])
    await asyncio.sleep(0.02)
    time.sleep(1.2 * settings.header_timeout_seconds)  # noqa: ASYNC251
    await asyncio.sleep(0.02)  # timers of that time are called
    client.writer.write(GET[20:])
    async with within(5):
        assert await client.reader.readline() == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", LATER)
async def test_a_stream_outlives_what_comes_behind_it(
    connect: Open, application: Application, name: str, together: bool
) -> None:
    client, later = await connect(), LATER[name]
    client.writer.write(STREAM + later if together else STREAM)
    assert b"begun" in await client.reader.readuntil(b"begun \r\n")
    if not together:
        client.writer.write(later)
    await asyncio.sleep(1.5 * SETTINGS.header_timeout_seconds)
    application.go_on.set()
    assert (await client.reader.readuntil(b"0\r\n\r\n")).startswith(b"5\r\nended")


@pytest.mark.parametrize(
    ("name", "status"), [("no HTTP", 400), ("too many fields", 431), ("too long a head", 431)]
)
async def test_a_refusal_comes_behind_the_answers_before_it(
    connect: Open, name: str, status: int
) -> None:
    client = await connect()
    data = GET + GET + LATER[name]
    answers = await client.ask(data)
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert b"[]HTTP/1.1 %d refused" % status in answers


async def test_a_client_that_leaves_is_noticed_behind_what_it_pipelined(
    connect: Open, application: Application
) -> None:
    client, gone = await connect(), asyncio.Event()

    async def stream(scope: Scope, _: Receive, send: Send) -> None:
        connection_of(scope).on_lost = gone.set
        await gone.wait()

    application.__class__ = type("Waits", (Application,), {"__call__": staticmethod(stream)})
    client.writer.write(STREAM + GET + GET)
    await asyncio.sleep(0.05)
    client.writer.close()
    async with within(5):
        await gone.wait()


async def test_requests_that_wait_on_a_connection_are_bounded(
    connect: Open, application: Application
) -> None:
    client = await connect()
    client.writer.write(STREAM + GET * 5000)
    await client.reader.readuntil(b"begun \r\n")
    application.go_on.set()
    answers = await client.rest()
    assert answers.count(b"HTTP/1.1 200 OK") == MAX_PIPELINED
    assert answers.count(b"HTTP/1.1 429 refused") == 1


async def test_upgrades_are_not_taken_and_nothing_behind_them_is_lost(connect: Open) -> None:
    offer = b"GET /whole HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    client = await connect()
    client.writer.write(
        offer + GET + b"GET /whole HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    assert (await client.rest()).count(b"HTTP/1.1 200 OK") == 3


HEADS = {
    "HTTP/0.9": (b"GET /whole\r\n", 400, "HTTP/0.9"),
    "HTTP/2.0 as text": (b"GET /whole HTTP/2.0\r\nhost: x\r\n\r\n", 400, "HTTP/2.0"),
    "no Host": (b"GET /whole HTTP/1.1\r\n\r\n", 400, "no Host"),
    "two Hosts": (b"GET /whole HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n", 400, "2 Host"),
    "9,000 fields": (
        b"GET /whole HTTP/1.1\r\nhost: x\r\n" + b"a:b\r\n" * 9000,
        431,
        "more than 16",
    ),
    "CONNECT": (b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n", 400, "CONNECT"),
    "two lengths": (CHUNKED.replace(b"x\r", b"x\r\ncontent-length: 1\r"), 400, "Content-Length"),
}


@pytest.mark.parametrize("name", HEADS)
async def test_heads_are_refused_by_name(connect: Open, name: str) -> None:
    data, status, said = HEADS[name]
    client = await connect()
    answer = await client.ask(data)
    assert answer.startswith(b"HTTP/1.1 %d refused" % status)
    assert said in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


async def test_http_1_0_needs_no_host(connect: Open) -> None:
    client = await connect()
    assert (await client.ask(b"GET /whole HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


BODIES = {
    "a bad chunk": (b"zz\r\n", "malformed_body"),
    "chunks of a byte": (b"1\r\n{\r\n" * 10_000, "malformed_body"),
    "trailers": (b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 100_000, "head_too_large"),
}


@pytest.mark.parametrize("name", BODIES)
async def test_what_is_wrong_with_a_body_is_its_answer(connect: Open, name: str) -> None:
    data, code = BODIES[name]
    client = await connect()
    answer = await client.ask(CHUNKED + data)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == code


async def test_chunks_may_be_small_and_have_a_few_trailers(connect: Open) -> None:
    client = await connect()
    small = b"1\r\n{\r\n" * 2000 + b"200\r\n%b\r\n" % (b" " * 512) * 100
    data = small + b"0\r\na: b\r\nhost: y\r\n\r\n"
    answer = await client.ask(CHUNKED + data + GET.replace(b"x\r", b"x\r\nconnection: close\r"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"%d" % (2000 + 51_200) in answer
