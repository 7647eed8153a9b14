"""Clients that cost more than they should: each is cut, or stays bounded, and others are served."""

import time

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value

from baton.settings import GrpcSettings
from tests.support.clock import DEADLINE_SECONDS
from tests.support.grpc.echo_service import COLLECT, EMPTY, FLOOD, HOLD, STALL, serving
from tests.support.http2.flood import IDS, MIB, cheap, flood, per_stream, repeated
from tests.support.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    SETTINGS_ACK,
    Code,
    Kind,
    Setting,
    data,
    frame,
    goaway,
    ping,
    priority,
    reset,
    settings,
    window_update,
)
from tests.support.http2.headers import block, call, call_fields, headers, literal, message
from tests.support.http2.peer import connect
from tests.support.wait import eventually

WINDOW = Setting.INITIAL_WINDOW_SIZE
_PART = block(call_fields(EMPTY))[:20]


def bomb() -> bytes:
    """Return a block of 16 KiB that stands for 48 MB of fields (HPACK bomb)."""
    head = block(call_fields(EMPTY)) + literal(b"x-bomb", b"b" * 4000, indexed=True)
    return head + b"\xbe" * 12_000


CALMED = {
    "rapid reset": lambda: per_stream(lambda i: headers(i, call_fields(HOLD)) + reset(i)),
    "rapid reset of whole calls": lambda: per_stream(lambda i: call(i, HOLD) + reset(i)),
    "resets by faults": lambda: per_stream(lambda i: call(i, HOLD) + window_update(i, 0)),
    "malformed requests": lambda: per_stream(lambda i: headers(i, [(b"X", b"")])),
    "empty HEADERS": lambda: per_stream(lambda i: frame(Kind.HEADERS, END_HEADERS, i)),
    "streams over the limit": lambda: per_stream(lambda i: call(i, HOLD)),
    "streams over the limit without a message": lambda: per_stream(
        lambda i: headers(i, call_fields(STALL))
    ),
    "SETTINGS": lambda: repeated(settings((WINDOW, 1000))),
    "empty SETTINGS": lambda: repeated(settings()),
    "acknowledged SETTINGS": lambda: repeated(SETTINGS_ACK),
    "PING": lambda: repeated(ping()),
    "PING answers": lambda: repeated(ping(flags=ACK)),
    "GOAWAY": lambda: repeated(goaway()),
    "PRIORITY": lambda: repeated(priority(1, 3)),
    "PRIORITY of many streams": lambda: per_stream(lambda i: priority(i) * 20),
    "unknown frames": lambda: repeated(frame(0x42, 0, 0, b"x")),
    "empty DATA": lambda: repeated(data(1), before=headers(1, call_fields(COLLECT))),
    "padded empty DATA": lambda: repeated(
        frame(Kind.DATA, 8, 1, b"\xff" + bytes(255)), before=headers(1, call_fields(COLLECT))
    ),
    "WINDOW_UPDATE": lambda: repeated(window_update(0, 1)),
    "WINDOW_UPDATE of a stream": lambda: repeated(window_update(1, 1), before=call(1, HOLD)),
    "empty CONTINUATION": lambda: repeated(
        frame(Kind.CONTINUATION, 0, 1), before=frame(Kind.HEADERS, 0, 1, _PART)
    ),
    "CONTINUATION": lambda: repeated(
        frame(Kind.CONTINUATION, 0, 1, bytes(16_000)), before=frame(Kind.HEADERS, 0, 1, _PART)
    ),
    "header bomb": lambda: [frame(Kind.HEADERS, END_HEADERS | END_STREAM, 1, bomb())],
    "header bomb from the table": lambda: [
        frame(Kind.HEADERS, END_HEADERS, 1, literal(b"x-bomb", b"b" * 4000, indexed=True)),
        frame(Kind.HEADERS, END_HEADERS | END_STREAM, 3, b"\xbe" * 16_000),
    ],
    "SETTINGS of many values": lambda: repeated(settings(*[(WINDOW, 1), (WINDOW, 2)] * 1300)),
}


@pytest.fixture
async def few_streams():
    """A server of which a connection may have 500 streams."""
    async with serving(GrpcSettings(max_streams_per_connection=500)) as served:
        yield served


@pytest.mark.parametrize("name", CALMED)
async def test_a_flood_is_calmed(few_streams, name):
    service, address = few_streams
    began = service.began
    async with connect(address) as peer:
        cost = await flood(address, peer, CALMED[name](), linger=DEADLINE_SECONDS)
    cheap(cost)
    assert cost.closed, cost
    assert cost.code is Code.ENHANCE_YOUR_CALM, cost
    assert service.began - began <= 3000
    await eventually(lambda: service.active == 0)


@pytest.mark.parametrize("update", [b"\x20", b"\x3f\xe1\x1f"])
async def test_size_updates_without_end_cost_nothing(address, update):
    """Two may begin a block (RFC 7541, section 4.2); a block of 60,000 took 93 ms."""
    fields = block(call_fields(EMPTY))
    async with connect(address) as peer:
        peer.send(
            frame(Kind.HEADERS, END_HEADERS, 1, update * 2 + fields), data(1, message(), end=True)
        )
        assert (await peer.finished(1)).grpc_status == "0"
        began = time.process_time()
        peer.send(frame(Kind.HEADERS, END_HEADERS, 3, update * (60_000 // len(update)) + fields))
        last = await peer.until_closed()
    assert last is not None and last.error is Code.COMPRESSION_ERROR
    assert time.process_time() - began < 0.2  # it took 0.6 s once


async def test_a_read_full_of_headers_leaves_others_their_turn(address):
    """Each read is 256 KiB of what takes longest to decode, half a second of it."""
    costly = b"\0\x81\xf3\x81\xf3" * 1500
    blocks = [frame(Kind.HEADERS, END_HEADERS | END_STREAM, i, costly) for i in IDS[:70]]
    async with connect(address) as peer, connect(address) as other:
        await other.call(1, EMPTY)
        peer.send(*blocks)
        slowest = 0.0
        for stream_id in IDS[1:30]:
            began = time.process_time()
            assert (await other.call(stream_id, EMPTY)).grpc_status == "0"
            slowest = max(slowest, time.process_time() - began)
        # Of both ends, and a turn of the server beside each of theirs; it took as long as a read.
        assert slowest < 0.45


@pytest.mark.parametrize("octets", [b"\x7f" + b"\xff" * 60_000, b"\x00\x7f" + b"\xff" * 60_000])
async def test_a_number_without_end_costs_nothing(address, octets):
    """Adding up 60,000 bytes of an integer would take seconds."""
    began = time.thread_time()
    async with connect(address) as peer:
        peer.send(frame(Kind.HEADERS, END_HEADERS, 1, octets))
        last = await peer.until_closed()
    assert last is not None and last.error is Code.COMPRESSION_ERROR
    assert time.thread_time() - began < 0.2


async def test_settings_beside_many_streams_cost_little(echo):
    """Each shifts the window of every stream."""
    service, address = echo
    async with connect(address) as peer:
        for stream_id in IDS[:1000]:
            peer.send(headers(stream_id, call_fields(STALL)))
        await eventually(lambda: service.active == 1000)
        some = settings(*[(WINDOW, 1), (WINDOW, 60_000)] * 8)
        cost = await flood(address, peer, repeated(some, MIB), linger=DEADLINE_SECONDS)
        assert cost.closed and cost.code is Code.ENHANCE_YOUR_CALM, cost
        cheap(cost, cpu=4)
    await eventually(lambda: service.active == 0)


async def test_window_updates_beside_many_shut_streams_cost_little(echo):
    service, address = echo
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 16))
        peer.send(window_update(0, 2**30))
        for stream_id in IDS[:1000]:
            peer.send(call(stream_id, FLOOD, UInt64Value(value=100).SerializeToString()))
        await eventually(lambda: service.active == 1000)
        cost = await flood(address, peer, repeated(window_update(1, 16), 200_000), linger=0.1)
        cheap(cost, memory=150 * MIB)
    await eventually(lambda: service.active == 0)


async def test_how_many_calls_a_client_may_cancel_is_a_setting():
    few = GrpcSettings(max_streams_per_connection=4, reset_burst=20, resets_per_second=0.1)
    async with serving(few) as (service, address), connect(address) as peer:
        for i in IDS[:20]:
            peer.send(call(i, HOLD), reset(i))
        await peer.round_trip()
        peer.send(call(IDS[20], HOLD), reset(IDS[20]))
        await peer.until_closed()
        assert peer.goaway is not None
        assert peer.goaway.error is Code.ENHANCE_YOUR_CALM
        assert service.active == 0
