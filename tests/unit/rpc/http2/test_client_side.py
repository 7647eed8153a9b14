"""What a client does with a server that is wrong (RFC 9113, sections 5, 6 and 8)."""

import pytest

from baton.rpc.http2.framing.codes import ErrorCode
from tests.support.http2.frames import (
    END_HEADERS,
    SETTINGS_ACK,
    Code,
    Kind,
    Setting,
    data,
    frame,
    goaway,
    reset,
    settings,
    window_update,
)
from tests.support.http2.headers import headers
from tests.unit.rpc.http2.pair import Side

OK = [(b":status", b"200")]
DONE = [(b"grpc-status", b"0")]
STREAM = {
    "DATA before HEADERS": data(1, b"x"),
    "no :status": headers(1, [(b"x", b"1")]),
    ":status that is no number": headers(1, [(b":status", b"2x0")]),
    ":status twice": headers(1, OK + OK),
    "a request's field": headers(1, [*OK, (b":path", b"/")]),
    "upper case": headers(1, [*OK, (b"X", b"1")]),
    "connection-specific": headers(1, [*OK, (b"connection", b"close")]),
    "trailers without an end": headers(1, OK) + headers(1, DONE),
    "pseudo-header in trailers": headers(1, OK) + headers(1, OK, end=True),
    "an interim response that ends": headers(1, [(b":status", b"100")], end=True),
    "less than content-length": headers(1, [*OK, (b"content-length", b"5")])
    + data(1, b"x", end=True),
    "window of 0": window_update(1, 0),
}
CONNECTION = {
    "PUSH_PROMISE": (
        frame(Kind.PUSH_PROMISE, END_HEADERS, 1, (2).to_bytes(4) + b"\x88"),
        Code.PROTOCOL_ERROR,
    ),
    "ENABLE_PUSH": (settings((2, 1)), Code.PROTOCOL_ERROR),
    "HEADERS of a stream nobody opened": (headers(7, OK), Code.PROTOCOL_ERROR),
    "HEADERS of a server's stream": (headers(2, OK), Code.PROTOCOL_ERROR),
    "DATA of a stream nobody opened": (data(7, b"x"), Code.PROTOCOL_ERROR),
    "a block that cannot be read": (
        frame(Kind.HEADERS, END_HEADERS, 1, b"\x80"),
        Code.COMPRESSION_ERROR,
    ),
    "RST_STREAM of no stream": (reset(0), Code.PROTOCOL_ERROR),
    "HTTP/1.1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", Code.FRAME_SIZE_ERROR),
}


@pytest.fixture
def client():
    """A client with a stream open, that the server has greeted."""
    side = Side(True)
    side.http2.receive(settings())
    return side


@pytest.mark.parametrize("name", STREAM)
def test_a_wrong_answer_ends_its_stream_alone(client, name):
    call, other = client.open(), client.open()
    client.take_output()
    client.http2.receive(STREAM[name])
    assert call.reset is ErrorCode.PROTOCOL_ERROR
    assert client.closed is None and other.reset is None
    assert client.take_output() == reset(1, Code.PROTOCOL_ERROR)


@pytest.mark.parametrize("name", CONNECTION)
def test_a_server_that_breaks_the_protocol_is_left(client, name):
    sent, code = CONNECTION[name]
    call = client.open()
    client.http2.receive(sent)
    assert client.closed == code
    assert call.reset is not None


def test_a_larger_window_is_acknowledged_before_it_is_used(client):
    """gRPC's C core holds data against the window of before until the ACK has come."""
    call = client.open()
    client.http2.send_data(call.stream, bytes(65_535 + 20))
    client.http2.receive(window_update(0, 1000))
    client.take_output()
    client.http2.receive(settings((Setting.INITIAL_WINDOW_SIZE, 65_535 + 20)))
    assert client.take_output() == SETTINGS_ACK + data(1, bytes(20))


def test_interim_responses_are_passed_over(client):
    call = client.open()
    client.http2.receive(headers(1, [(b":status", b"103"), (b"link", b"x")]) + headers(1, OK))
    assert call.headers == [OK] and not call.ended


def test_an_answer_of_trailers_only(client):
    call = client.open(end=True)
    client.http2.receive(headers(1, OK + DONE, end=True))
    assert call.ended and call.reset is None and not client.http2.streams


def test_a_server_that_wants_no_more_of_a_request(client):
    """RST_STREAM with NO_ERROR after a whole answer (RFC 9113, section 8.1)."""
    call = client.open()
    client.http2.receive(headers(1, OK + DONE, end=True) + reset(1, Code.NO_ERROR))
    assert call.ended and call.reset in (None, ErrorCode.NO_ERROR)
    assert client.closed is None and not client.http2.streams


def test_frames_of_a_stream_that_was_cancelled_do_no_harm(client):
    call, other = client.open(), client.open()
    client.http2.reset(call.stream, ErrorCode.CANCEL)
    client.http2.receive(headers(1, OK) + data(1, b"late") + headers(1, DONE, end=True))
    client.http2.receive(headers(3, OK + DONE, end=True))
    assert other.ended and client.closed is None and call.headers == []


def test_streams_after_the_last_of_a_goaway_may_be_tried_again(client):
    calls = [client.open() for _ in range(3)]
    client.http2.receive(goaway(1, Code.NO_ERROR))
    assert [call.reset for call in calls] == [None, *[ErrorCode.REFUSED_STREAM] * 2]
    client.http2.receive(headers(1, OK + DONE, end=True))
    assert calls[0].ended
