"""The windows that the server opens for requests (RFC 9113, sections 5.2 and 6.9)."""

from google.protobuf.wrappers_pb2 import BytesValue

from tests.support.grpc.echo_service import COLLECT, EMPTY, STALL, UNARY, serving
from tests.support.http2.frames import (
    PADDED,
    Code,
    Kind,
    Setting,
    data,
    frame,
    reset,
    window_update,
)
from tests.support.http2.headers import call_fields, headers, message
from tests.support.http2.peer import Peer, connect
from tests.support.wait import eventually

WINDOW = Setting.INITIAL_WINDOW_SIZE
DEFAULT = 65_535


def echo(size: int) -> bytes:
    return BytesValue(value=bytes(size)).SerializeToString()


async def windows(peer: Peer) -> tuple[int, int]:
    """Return what the server lets a new stream send, and all streams."""
    await peer.round_trip()
    first = peer.frames[0]
    assert first.kind == Kind.SETTINGS
    opened = sum(
        int.from_bytes(got.payload)
        for got in peer.frames
        if got.kind == Kind.WINDOW_UPDATE and got.stream_id == 0
    )
    return first.settings.get(WINDOW, DEFAULT), DEFAULT + opened


async def test_a_request_of_many_windows_is_taken(address):
    """The server opens windows as it reads; the client sends no more than it may."""
    async with connect(address) as peer:
        stream, connection = await windows(peer)
        body = message(echo(4_000_000))
        peer.send(headers(1, call_fields(UNARY)))
        sent = 0
        while sent < len(body):
            size = min(stream, connection, 16_384, len(body) - sent)
            if size:
                peer.send(data(1, body[sent : sent + size], end=sent + size == len(body)))
                sent, stream, connection = sent + size, stream - size, connection - size
                continue
            got = await peer.wait(Kind.WINDOW_UPDATE)
            increment = int.from_bytes(got.payload)
            assert increment > 0
            if got.stream_id:
                stream += increment
            else:
                connection += increment
        peer.send(window_update(0, 2**30), window_update(1, 2**30))
        assert len((await peer.finished()).body) > 4_000_000


async def test_more_than_the_stream_window_is_an_error():
    async with serving() as (_, address), connect(address) as peer:
        stream, connection = await windows(peer)
        peer.send(headers(1, call_fields(STALL)))
        await _send(peer, 1, min(stream, connection))
        await peer.round_trip()
        more = sum(
            int.from_bytes(got.payload)
            for got in peer.frames
            if got.kind == Kind.WINDOW_UPDATE and got.stream_id == 1
        )
        await _send(peer, 1, more + 1)
        while not (peer.goaway or peer.answer().reset):
            if await peer.receive() is None:
                break
        code = peer.goaway.error if peer.goaway else peer.answer().reset
        assert code is Code.FLOW_CONTROL_ERROR


async def _send(peer: Peer, stream_id: int, size: int) -> None:
    while size > 0:
        piece = min(size, 16_384)
        peer.send(data(stream_id, bytes(piece)))
        await peer.drain()
        size -= piece


async def test_padding_counts_and_is_given_back(address):
    """All of a frame's payload takes window, so all of it must be given back."""
    async with connect(address) as peer:
        _, connection = await windows(peer)
        await _collect(
            peer,
            connection,
            lambda: frame(Kind.DATA, PADDED, 1, b"\xff" + message(echo(1)) + bytes(255)),
        )


async def test_empty_messages_are_taken_without_end(address):
    async with connect(address) as peer:
        peer.send(headers(1, call_fields(COLLECT)))
        for _ in range(50):
            peer.send(data(1, message() * 3000))
            await peer.round_trip()
        peer.send(data(1, end=True))
        assert (await peer.finished()).grpc_status == "0"


async def _collect(peer: Peer, window: int, make) -> None:
    """Send frames on stream 1 for more than a window, as updates allow; the call must end well."""
    peer.send(headers(1, call_fields(COLLECT)))
    total, allowed = 0, [DEFAULT, window]
    stream = peer.frames[0].settings.get(WINDOW, DEFAULT)
    allowed = {0: window, 1: stream}
    one = make()
    size = len(one) - 9
    while total < 1.2 * window:
        while min(allowed.values()) >= size:
            peer.send(one)
            total += size
            allowed = {key: value - size for key, value in allowed.items()}
        got = await peer.wait(Kind.WINDOW_UPDATE)
        allowed[got.stream_id] += int.from_bytes(got.payload)
    peer.send(data(1, end=True))
    assert (await peer.finished()).grpc_status == "0"


async def test_data_of_streams_that_were_reset_is_given_back(address):
    """Or the connection's window would shut for good."""
    async with connect(address) as peer:
        stream, connection = await windows(peer)
        piece = min(stream, 60_000)
        sent = 0
        for stream_id in range(1, 1 << 20, 2):
            if sent > 1.2 * connection:
                break
            peer.send(
                headers(stream_id, call_fields(STALL)), data(stream_id, bytes(min(piece, 16_384)))
            )
            peer.send(reset(stream_id), data(stream_id, bytes(1000)))
            sent += min(piece, 16_384) + 1000
            if stream_id % 50 == 1:
                await peer.round_trip()
                given = sum(
                    int.from_bytes(got.payload)
                    for got in peer.frames
                    if got.kind == Kind.WINDOW_UPDATE and got.stream_id == 0
                )
                assert sent - given < connection, "the window shuts"
        assert peer.goaway is None
        assert (await peer.call(2**21 + 1, EMPTY)).grpc_status == "0"


async def test_empty_messages_that_nobody_reads_shut_the_window(echo):
    """Each takes memory, though it has no bytes of its own."""
    service, address = echo
    async with connect(address) as peer:
        stream, _ = await windows(peer)
        peer.send(headers(1, call_fields(STALL)))
        sent = 0
        while sent + 10_000 <= stream:
            peer.send(data(1, message() * 2000))
            sent += 10_000
        await peer.round_trip()
        await peer.round_trip()
        given = sum(
            int.from_bytes(got.payload)
            for got in peer.frames
            if got.kind == Kind.WINDOW_UPDATE and got.stream_id == 1
        )
        assert given < stream / 2
        peer.send(reset(1))
        await eventually(lambda: service.active == 0)
