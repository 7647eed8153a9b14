"""n requests on a connection get n answers, each its own, however they are framed, cut and sent."""

import asyncio
import json
from random import Random

import pytest

from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.middleware import RequestMiddleware
from services.frontend.http.protocol.exchange import UNREAD_BYTES
from services.frontend.http.responses import send_json
from tests.support.http.answers import Answer, Asked, read_answers
from tests.support.http.connections import Application, play_connection
from tests.support.http.doubts import DOUBTS
from tests.support.http.second_reader import draw_bytes, read_by_h11, read_here
from tests.support.http.wire import Wire

BATCH = 50
SOAK = [pytest.mark.soak, pytest.mark.timeout(900)]  # takes 71 s of a core


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, 1_000, id="some"),
        pytest.param(1_000, 20_000, id="many", marks=SOAK),
    ],
)
async def test_n_requests_get_n_answers(first: int, count: int) -> None:
    sent = answered = 0
    for at in range(first, first + count, BATCH):
        async with asyncio.TaskGroup() as group:
            played = [group.create_task(play_connection(at + one)) for one in range(BATCH)]
        sent += sum(one.result()[0] for one in played)
        answered += sum(one.result()[1] for one in played)
    # Most connections are not ended before all is answered: else nothing was tried here.
    assert answered > 0.8 * sent, (sent, answered)


@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, 1_000, id="some"),
        pytest.param(1_000, 20_000, id="many", marks=SOAK),
    ],
)
async def test_another_reader_ends_requests_where_this_one_does(first: int, count: int) -> None:
    """Of bytes that are wrong somewhere: what one of two takes for a body, the other never takes
    for a request."""
    alike = 0
    for seed in range(first, first + count):
        data = draw_bytes(Random(seed))
        heard, here = read_by_h11(data), await read_here(data)
        both = min(len(heard.requests), len(here))
        assert here[:both] == heard.requests[:both], (seed, data)
        assert len(here) == both or heard.stricter, (seed, data, heard.why)
        alike += here == heard.requests
    assert alike > 0.6 * count, alike


@pytest.mark.parametrize("doubt", DOUBTS, ids=range(len(DOUBTS)))
async def test_nothing_behind_a_doubtful_request_is_one(doubt: bytes) -> None:
    application = Application()
    wire = Wire(application)
    wire.send(doubt + b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, b"1.1")], True)
    assert [one.status for one in answers] == [400]
    assert "/smuggled" not in application.reached
    wire.lose()


async def answers_to(data: bytes, wire: Wire, version: bytes = b"1.1") -> list[Answer]:
    """Return what comes of bytes on a connection that ends behind them."""
    wire.send(data)
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, version)] * 9, True)
    wire.lose()
    return answers


LAST = b"GET /whole/last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "behind", [LAST, b"POST /whole/half HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{"]
)
async def test_nothing_is_served_behind_the_last_request(behind: bytes) -> None:
    application = Application()
    answers = await answers_to(LAST + behind, Wire(application))
    assert [one.status for one in answers] == [200]
    assert application.reached == ["/whole/last"]


async def test_an_answer_that_the_client_is_not_told_to_go_on_for_ends_the_connection() -> None:
    # Whether the body comes after such an answer is the client's choice (RFC 9110, section 10.1.1).
    head = (
        b"POST /refused/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\nexpect: 100-continue\r\n\r\n"
    )
    application = Application()
    answers = await answers_to(head + b"GET /smuggled HTTP/1.1\r\n", Wire(application))
    assert [(one.status, one.last) for one in answers] == [(401, True)]
    assert application.reached == ["/refused/1"]


@pytest.mark.parametrize(
    ("length", "last"), [(UNREAD_BYTES, False), (UNREAD_BYTES + 1, True)], ids=["short", "long"]
)
async def test_a_body_that_is_not_read_is_dropped_if_it_is_short(length: int, last: bool) -> None:
    wire = Wire(Application())
    head = b"POST /refused/1 HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length
    wire.send(head + b" " * (length - 1))
    wire.send(b" " + LAST)
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, b"1.1")] * 2, True)
    assert [one.status for one in answers] == ([401] if last else [401, 200])
    wire.lose()


async def test_an_answer_to_a_client_that_leaves_within_its_body_is_dropped() -> None:
    ended: list[BaseException | None] = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send_json(send, {}, 401)
        except BaseException as error:
            ended.append(error)
            raise
        ended.append(None)

    wire = Wire(refuse)
    wire.send(b"POST /refused/1 HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{")
    await wire.turn()
    await wire.turn()
    wire.lose()
    assert await wire.until(lambda: bool(ended))
    assert ended == [None]
    assert not wire.socket.written


async def test_a_client_of_http_1_0_keeps_its_connection_if_it_asks() -> None:
    ask = b"GET /whole/1 HTTP/1.0\r\n%b\r\n"
    kept = ask % b"connection: keep-alive\r\n"
    answers = await answers_to(kept + kept + ask % b"" + kept, Wire(Application()), b"1.0")
    said = [one.fields[b"connection"] for one in answers]
    assert said == [b"keep-alive", b"keep-alive", b"close"]


async def test_a_stream_of_http_1_0_ends_with_its_connection() -> None:
    ask = b"GET /stream/1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    (answer,) = await answers_to(ask + ask, Wire(Application()), b"1.0")
    assert (answer.body, answer.last) == (b"1 0 0 end", True)


async def test_http_1_0_is_not_told_to_go_on() -> None:
    ask = b"POST /whole/1 HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    wire = Wire(Application())
    wire.send(ask)
    wire.send(b"{}")
    assert await wire.until(lambda: wire.socket.closed)
    assert wire.socket.written.startswith(b"HTTP/1.1 200 OK")
    wire.lose()


HEAD = b"POST /whole/1 HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "frames", [b"0\r\nx: ", b"2;", b"0\r\nx"], ids=["a trailer", "an extension", "a trailer's name"]
)
async def test_what_frames_a_body_is_bounded(frames: bytes) -> None:
    """A trailer's value is kept until it is whole, which it need never be."""
    wire = Wire(Application())
    wire.send(HEAD + frames)
    for _ in range(32):
        wire.send(b"a" * 8192)
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, b"1.1")], True)
    assert [(one.status, one.last) for one in answers] == [(431, True)]
    wire.lose()


async def test_a_long_head_in_one_read_with_a_body_does_not_count_for_the_next_one() -> None:
    """What a read has beside the end of a head is not the next one's."""
    length = 150_000
    first = b"POST /whole/1 HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % length
    wire = Wire(Application())
    wire.send(first[:20])
    wire.send(first[20:] + b" " * length + LAST[:30])
    wire.send(LAST[30:])
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, b"1.1")] * 2, True)
    assert [one.status for one in answers] == [200, 200]
    wire.lose()


class Full:
    """A machine whose memory is taken."""

    def __iadd__(self, _: bytes) -> "Full":
        raise MemoryError

    def __bytes__(self) -> bytes:
        return b""

    def __len__(self) -> int:
        return 0


async def test_a_body_without_memory_is_refused_as_overload() -> None:
    wire = Wire(Application())
    wire.send(HEAD)
    await wire.turn()
    wire.connection.cycle.body = Full()  # type: ignore[assignment]
    wire.send(b"2\r\n{}\r\n0\r\n\r\n")
    assert await wire.until(lambda: wire.socket.closed)
    answers, _ = read_answers(bytes(wire.socket.written), [Asked(False, b"1.1")], True)
    assert [(one.status, one.last) for one in answers] == [(503, True)]
    wire.lose()


async def test_a_handler_without_memory_is_overload_and_its_connection_goes_on() -> None:
    async def starved(scope: Scope, _: Receive, send: Send) -> None:
        if scope["path"] == "/starved":
            raise MemoryError
        await send_json(send, [])

    wire = Wire(RequestMiddleware(starved))
    answers = await answers_to(b"GET /starved HTTP/1.1\r\nhost: x\r\n\r\n" + LAST, wire)
    assert [one.status for one in answers] == [503, 200]
    assert answers[0].fields[b"retry-after"] == b"1"
    assert json.loads(answers[0].body)["error"]["code"] == "overloaded"
