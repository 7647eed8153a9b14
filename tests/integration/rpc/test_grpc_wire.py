"""What gRPC puts on HTTP/2 (grpc/doc/PROTOCOL-HTTP2), sent by hand, right and wrong."""

import base64
import re

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue
from google.rpc.status_pb2 import Status

from tests.support.grpc.echo_service import (
    COLLECT,
    EMPTY,
    HOLD,
    PRODUCE,
    SERVICE,
    TRAILING,
    UNARY,
)
from tests.support.http2.call import sent
from tests.support.http2.frames import data
from tests.support.http2.headers import call_fields, headers, message
from tests.support.http2.peer import connect

OK, INVALID, DEADLINE, EXHAUSTED, UNIMPLEMENTED, INTERNAL = "0", "3", "4", "8", "12", "13"
TEN = BytesValue(value=b"0123456789").SerializeToString()
TOO_LARGE = BytesValue(value=bytes(5 * 2**20)).SerializeToString()
SLEEP = Duration(seconds=60).SerializeToString()


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"]
)
async def test_content_types_of_grpc(address, kind):
    fields = [(b"content-type", kind.encode())]
    answer = await sent(address, EMPTY, message(), fields=fields, without=b"content-type")
    assert answer.grpc_status == OK
    assert answer.headers[0]["content-type"].startswith("application/grpc")


@pytest.mark.parametrize(
    "kind", ["text/html", "application/json", "application/grpc-web", "application/grpcx"]
)
async def test_other_content_types(address, kind):
    fields = [(b"content-type", kind.encode())]
    answer = await sent(address, EMPTY, message(), fields=fields, without=b"content-type")
    assert answer.status == "415"


async def test_no_content_type(address):
    answer = await sent(address, EMPTY, message(), without=b"content-type")
    assert answer.status == "415"


@pytest.mark.parametrize("method", [b"GET", b"PUT", b"DELETE", b"HEAD", b"OPTIONS"])
async def test_other_methods_than_post(address, method):
    async with connect(address) as peer:
        fields = [
            (key, method if key == b":method" else value) for key, value in call_fields(EMPTY)
        ]
        peer.send(headers(1, fields, end=True))
        answer = await peer.finished()
        assert answer.status == "405"
        assert (await peer.call(3, EMPTY)).grpc_status == OK


@pytest.mark.parametrize(
    "path", [f"/{SERVICE}/Nothing", "/no.Service/Empty", "/", "//", "/a/b/c", "/x" * 2000]
)
async def test_what_is_not_implemented(address, path):
    answer = await sent(address, path, message())
    assert answer.grpc_status == UNIMPLEMENTED
    assert answer.status == "200"


@pytest.mark.parametrize("timeout", ["1n", "1u", "1m", "00000001m", "99999999n"])
async def test_a_deadline_that_comes(address, timeout):
    fields = [(b"grpc-timeout", timeout.encode())]
    assert (
        await sent(address, f"/{SERVICE}/Sleep", message(SLEEP), fields=fields)
    ).grpc_status == DEADLINE


@pytest.mark.parametrize("timeout", ["1S", "1M", "1H", "99999999H", "5000m", "99999999u"])
async def test_a_deadline_that_is_far(address, timeout):
    fields = [(b"grpc-timeout", timeout.encode())]
    assert (await sent(address, EMPTY, message(), fields=fields)).grpc_status == OK


@pytest.mark.parametrize(
    "timeout", ["", "S", "1", "1x", "-1S", "1.5S", "123456789S", " 1S", "1 S", "¹S"]
)
async def test_a_deadline_that_is_none(address, timeout):
    """gRPC leaves open what comes of it: an error or none, but an answer."""
    fields = [(b"grpc-timeout", timeout.encode())]
    answer = await sent(address, EMPTY, message(), fields=fields)
    assert answer.reset or answer.grpc_status in (OK, INVALID, INTERNAL) or answer.status == "400"


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 255])
async def test_metadata_of_bytes(address, size, padding):
    value = bytes(range(size))
    text = base64.b64encode(value)
    fields = [(TRAILING.encode(), text if padding else text.rstrip(b"="))]
    answer = await sent(address, UNARY, message(TEN), fields=fields)
    got = answer.headers[-1][TRAILING]
    assert base64.b64decode(got + "=" * (-len(got) % 4)) == value


async def test_metadata_of_bytes_that_is_no_base64(address):
    answer = await sent(address, UNARY, message(TEN), fields=[(TRAILING.encode(), b"@@@")])
    assert answer.done


async def test_a_message_of_a_status_is_percent_encoded(address):
    text = "a % ü\n😈~ z"
    answer = await sent(
        address, f"/{SERVICE}/Fail", message(Status(code=5, message=text).SerializeToString())
    )
    assert answer.grpc_message == "a %25 %C3%BC%0A%F0%9F%98%88~ z"
    assert re.fullmatch(r"[ -~]*", answer.grpc_message)


async def test_an_answer_is_headers_data_and_trailers(address):
    answer = await sent(address, UNARY, message(TEN))
    first, last = answer.headers
    assert first[":status"] == "200"
    assert "grpc-status" not in first
    assert ":status" not in last
    assert (last["grpc-status"], answer.body) == (OK, message(TEN))


async def test_a_failure_without_messages_is_one_header_section(address):
    failure = Status(code=5, message="no").SerializeToString()
    answer = await sent(address, f"/{SERVICE}/Fail", message(failure))
    assert len(answer.headers) == 1 and not answer.body
    assert (answer.status, answer.grpc_status, answer.grpc_message) == ("200", "5", "no")
    assert answer.headers[0]["content-type"].startswith("application/grpc")


async def test_headers_come_before_the_first_message_is_due(address):
    async with connect(address) as peer:
        peer.send(headers(1, call_fields(HOLD)), data(1, message(), end=True))
        while not peer.answer().body:
            await peer.receive()
        assert peer.answer().status == "200"


async def test_trailers_of_a_client_are_not_metadata_and_do_no_harm(address):
    async with connect(address) as peer:
        peer.send(headers(1, call_fields(COLLECT)), data(1, message(TEN)))
        peer.send(headers(1, [(b"x-late", b"1")], end=True))
        assert (await peer.finished()).grpc_status == OK


async def test_a_stream_of_empty_messages(address):
    sizes = b"".join(b"\x0a\x09\x11" + bytes(8) for _ in range(50))
    answer = await sent(address, PRODUCE, message(sizes))
    assert (answer.grpc_status, bytes(answer.body)) == (OK, message() * 50)
