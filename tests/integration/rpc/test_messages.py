"""Messages on the wire: their framing, lengths and compression (grpc/doc/compression)."""

import gzip

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BytesValue

from tests.support.grpc.echo_service import (
    COLLECT,
    UNARY,
)
from tests.support.http2.call import sent
from tests.support.http2.headers import message
from tests.support.http2.peer import Answer

OK, INVALID, DEADLINE, EXHAUSTED, UNIMPLEMENTED, INTERNAL = "0", "3", "4", "8", "12", "13"
TEN = BytesValue(value=b"0123456789").SerializeToString()
TOO_LARGE = BytesValue(value=bytes(5 * 2**20)).SerializeToString()
SLEEP = Duration(seconds=60).SerializeToString()


def echoed(answer: Answer) -> bytes:
    return BytesValue.FromString(bytes(answer.body[5:])).value


async def test_an_unknown_encoding(address):
    answer = await sent(
        address, UNARY, message(b"x", compressed=True), fields=[(b"grpc-encoding", b"br")]
    )
    assert answer.grpc_status == UNIMPLEMENTED
    accepted = "".join(section.get("grpc-accept-encoding", "") for section in answer.headers)
    assert "gzip" in accepted and "identity" in accepted


async def test_a_compressed_message_without_encoding(address):
    answer = await sent(address, UNARY, message(gzip.compress(TEN), compressed=True))
    assert answer.grpc_status in (INVALID, INTERNAL)


async def test_identity_and_the_compressed_flag(address):
    body = message(TEN, compressed=True)
    answer = await sent(address, UNARY, body, fields=[(b"grpc-encoding", b"identity")])
    assert answer.grpc_status in (INVALID, INTERNAL)


async def test_gzip(address):
    body = message(gzip.compress(TEN), compressed=True)
    answer = await sent(address, UNARY, body, fields=[(b"grpc-encoding", b"gzip")])
    assert (answer.grpc_status, echoed(answer)) == (OK, b"0123456789")


async def test_a_message_that_is_not_compressed_beside_gzip(address):
    fields = [(b"grpc-encoding", b"gzip")]
    bodies = (message(TEN), message(gzip.compress(TEN), compressed=True))
    assert (await sent(address, COLLECT, *bodies, fields=fields)).grpc_status == OK


async def test_gzip_that_is_damaged(address):
    damaged = gzip.compress(TEN)[:-6] + b"xxxxxx"
    body = message(damaged, compressed=True)
    answer = await sent(address, UNARY, body, fields=[(b"grpc-encoding", b"gzip")])
    assert answer.grpc_status in (INTERNAL, INVALID)


async def test_gzip_that_expands_over_the_limit(address):
    body = message(gzip.compress(TOO_LARGE), compressed=True)
    assert len(body) < 16_384
    answer = await sent(address, UNARY, body, fields=[(b"grpc-encoding", b"gzip")])
    assert answer.grpc_status == EXHAUSTED


@pytest.mark.parametrize("size", [4 * 2**20 + 1, 2**31, 2**32 - 1])
async def test_a_length_over_the_limit(address, size):
    answer = await sent(address, UNARY, b"\0" + size.to_bytes(4) + b"x")
    assert answer.grpc_status == EXHAUSTED


@pytest.mark.parametrize("body", [b"\0", b"\0\0\0\0\5abc", message(TEN) + b"\0\0"])
async def test_a_message_that_is_cut_off(address, body):
    answer = await sent(address, UNARY, body)
    assert answer.reset or answer.grpc_status not in (OK, "")


async def test_a_flag_that_is_unknown(address):
    answer = await sent(address, UNARY, b"\x07" + message(TEN)[1:])
    assert answer.reset or answer.grpc_status not in (OK, "")


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab"])
async def test_malformed_protobuf(address, payload):
    answer = await sent(address, UNARY, message(payload))
    assert answer.grpc_status in (INVALID, INTERNAL)


async def test_no_message_where_one_is_needed(address):
    assert (await sent(address, UNARY)).grpc_status not in (OK, "")
    assert (await sent(address, UNARY, b"")).grpc_status not in (OK, "")


async def test_two_messages_where_one_is_taken(address):
    answer = await sent(address, UNARY, message(TEN) + message(TEN))
    assert answer.reset or answer.grpc_status not in (OK, "")


async def test_a_message_in_frames_of_one_byte(address):
    answer = await sent(address, UNARY, *(bytes((octet,)) for octet in message(TEN)), b"")
    assert (answer.grpc_status, echoed(answer)) == (OK, b"0123456789")


async def test_many_messages_in_a_frame(address):
    answer = await sent(address, COLLECT, message(TEN) * 500 + message(TEN)[:7], message(TEN)[7:])
    assert answer.grpc_status == OK
    assert answer.body[5:] == b"\x08\x92\x27"  # 5010
