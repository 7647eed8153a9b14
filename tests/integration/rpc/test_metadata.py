"""Metadata that is longer than a call may have: as long as it can be read, its call alone ends."""

import pytest

from tests.support.grpc.echo_service import EMPTY
from tests.support.http2.frames import END_HEADERS, END_STREAM, Code, Kind, data, frame
from tests.support.http2.headers import block, call_fields, literal, message
from tests.support.http2.peer import Peer, connect

TOO_LARGE = "8"
"""RESOURCE_EXHAUSTED."""


def in_frames(stream_id: int, fields: bytes) -> bytes:
    """Return a header block in frames of 16 KiB."""
    pieces = [fields[at : at + 16_384] for at in range(0, len(fields), 16_384)]
    kinds = [Kind.HEADERS] + [Kind.CONTINUATION] * (len(pieces) - 1)
    flags = [0] * (len(pieces) - 1) + [END_HEADERS]
    return b"".join(
        frame(kind, flag, stream_id, piece)
        for kind, flag, piece in zip(kinds, flags, pieces, strict=True)
    )


async def goes_on(peer: Peer, stream_id: int) -> None:
    """Check that calls of a connection are answered, one with a field of the table too."""
    assert (await peer.call(stream_id, EMPTY)).grpc_status == "0"
    known = block(call_fields(EMPTY)) + b"\xbe"  # the newest entry (RFC 7541, section 2.3.3)
    peer.send(frame(Kind.HEADERS, END_HEADERS, stream_id + 2, known))
    peer.send(data(stream_id + 2, message(), end=True))
    assert (await peer.finished(stream_id + 2)).grpc_status == "0"


@pytest.mark.parametrize("size", [17_000, 60_000, 100_000, 150_000])
@pytest.mark.parametrize("indexed", [False, True])
async def test_one_long_field_ends_its_call_alone(address: str, size: int, indexed: bool) -> None:
    async with connect(address) as peer:
        long = literal(b"x-long", b"b" * size, indexed=indexed)
        fields = block(call_fields(EMPTY)) + long + literal(b"x-known", b"a", indexed=True)
        peer.send(in_frames(1, fields), data(1, message(), end=True))
        assert (await peer.finished()).grpc_status == TOO_LARGE
        await goes_on(peer, 3)


async def test_many_fields_end_their_call_alone(address: str) -> None:
    async with connect(address) as peer:
        known = literal(b"x-known", b"a", indexed=True)
        many = b"".join(literal(b"x-%d" % at, b"b" * 20) for at in range(2200))
        peer.send(in_frames(1, block(call_fields(EMPTY)) + many + known))
        peer.send(frame(Kind.DATA, END_STREAM, 1, message()))
        assert (await peer.finished()).grpc_status == TOO_LARGE
        await goes_on(peer, 3)


@pytest.mark.parametrize("value", [b"b" * 170_000, b"b" * 20])
async def test_what_cannot_be_read_ends_the_connection(address: str, value: bytes) -> None:
    """More than 160 KiB, as it is sent or, with 32 bytes more for each field, as it is read."""
    async with connect(address) as peer:
        many = b"".join(literal(b"x", value) for _ in range(170_000 // len(value)))
        peer.send(in_frames(1, block(call_fields(EMPTY)) + many))
        await peer.until_closed()
        assert peer.goaway is not None
        assert peer.goaway.error is Code.ENHANCE_YOUR_CALM


async def test_a_credential_that_is_too_long_is_the_methods_matter(address: str) -> None:
    """It is told that it is no key, where keys are wanted, and not that it is long."""
    async with connect(address) as peer:
        key = literal(b"authorization", b"Bearer " + b"A" * 100_000)
        known = literal(b"x-known", b"a", indexed=True)
        peer.send(in_frames(1, block(call_fields(EMPTY)) + key + known))
        peer.send(data(1, message(), end=True))
        assert (await peer.finished()).grpc_status == "0"
        await goes_on(peer, 3)
