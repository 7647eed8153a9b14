"""Clients that are slow, silent, or keep the server waiting: what they hold is bounded."""

import asyncio
import os

import pytest
from google.protobuf.wrappers_pb2 import UInt64Value

from baton.rpc.transport import socket_protocol
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import GrpcSettings
from bench.harness.machine import rss_bytes
from tests.support.clock import DEADLINE_SECONDS, Stopwatch, within
from tests.support.grpc.echo_service import EMPTY, FLOOD, HOLD, UNARY, serving
from tests.support.http2.flood import IDS, MIB, cheap, flood, repeated
from tests.support.http2.frames import (
    PREFACE,
    Code,
    Kind,
    Setting,
    data,
    frame,
    settings,
    window_update,
)
from tests.support.http2.headers import block, call, call_fields, headers, message
from tests.support.http2.peer import connect
from tests.support.wait import eventually

WINDOW = Setting.INITIAL_WINDOW_SIZE
_PART = block(call_fields(EMPTY))[:20]


@pytest.mark.parametrize("size", [1, 0])
async def test_windows_that_are_tiny_and_stay_so(size):
    """A client that opens nothing more is cut once it has not read for `stall_seconds`."""
    stalling = serving(stall_seconds=0.3)
    async with stalling as (service, address), connect(address, start=False) as peer:
        peer.start((WINDOW, size))
        many = UInt64Value(value=1000).SerializeToString()
        cost = await flood(address, peer, (call(i, FLOOD, many) for i in IDS[:500]), linger=1)
        cheap(cost, memory=100 * MIB)
        assert not cost.closed, cost
        await eventually(lambda: service.active == 0)
        assert (await peer.call(2001, f"{EMPTY}x")).grpc_status == "12"


async def test_a_window_that_is_opened_byte_by_byte(echo):
    service, address = echo
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 1))
        before = call(1, FLOOD, UInt64Value(value=1000).SerializeToString())
        updates = repeated(window_update(1, 1), MIB, before)
        cost = await flood(address, peer, updates, linger=DEADLINE_SECONDS)
        assert cost.code is Code.ENHANCE_YOUR_CALM, cost
        cheap(cost)
    await eventually(lambda: service.active == 0)


def impatient() -> GrpcSettings:
    """Settings of which the limits for people do not hold."""
    return GrpcSettings.model_construct(
        **{
            **GrpcSettings().model_dump(),
            "keepalive_seconds": 0.2,
            "keepalive_timeout_seconds": 0.2,
        }
    )


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        PREFACE[:10],
        PREFACE,
        PREFACE + settings()[:5],
        PREFACE + settings(),
        PREFACE + settings() + frame(Kind.HEADERS, 0, 1, _PART),
        PREFACE + settings() + headers(1, call_fields(HOLD)) + data(1, message(b"xyz")[:6]),
        PREFACE + settings() + call(1, HOLD),
    ],
    ids=[
        "nothing",
        "half preface",
        "preface",
        "half SETTINGS",
        "idle",
        "half block",
        "half message",
        "call",
    ],
)
async def test_a_connection_that_falls_silent_is_closed(begin):
    """Half-open: it answers no PING."""
    async with serving(impatient()) as (service, address):
        async with connect(address, start=False) as peer:
            peer.send(begin)
            async with within(5):
                await peer.until_closed()
        await eventually(lambda: service.active == 0)


TRICKLED = {
    "header block": frame(Kind.HEADERS, 0, 1, _PART) + frame(Kind.CONTINUATION, 0, 1, bytes(9_000)),
    "frame": frame(0x42, 0, 0, bytes(16_000)),
    "frame after whole ones": call(1, HOLD) + frame(Kind.DATA, 0, 1, bytes(16_000)),
}


@pytest.mark.parametrize("name", TRICKLED)
async def test_a_frame_that_comes_byte_by_byte_does_not_last_for_ever(name):
    """Each byte is a sign of life: a peer that is silent would be cut by the keepalive."""
    async with serving(GrpcSettings(frame_seconds=0.5)) as (service, address):
        async with connect(address) as peer, connect(address) as other:
            ended = asyncio.ensure_future(peer.until_closed())
            watch = Stopwatch()
            async with within(5):
                for octet in TRICKLED[name]:
                    peer.send(bytes((octet,)))
                    await asyncio.wait((ended,), timeout=0.01)
                    if ended.done():
                        break
                last = await ended
            assert last is not None and last.error is Code.ENHANCE_YOUR_CALM
            assert watch.elapsed > 0.5
            assert (await other.call(1, EMPTY)).grpc_status == "0"
        await eventually(lambda: service.active == 0)


@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE, PREFACE + settings()[:5]], ids=len)
@pytest.mark.parametrize("drips", [False, True])
async def test_a_greeting_that_does_not_end_is_given_up(monkeypatch, said, drips):
    """Long before an idle client is, and also where a byte comes now and then."""
    assert socket_protocol.GREETING_SECONDS == 10
    monkeypatch.setattr(socket_protocol, "GREETING_SECONDS", 0.5)
    async with serving() as (_, address), connect(address, start=False) as peer:
        peer.send(said)
        closed = asyncio.create_task(peer.until_closed())
        rest = (PREFACE + settings())[len(said) :]
        async with within(5):
            for byte in rest if drips else b"":
                await asyncio.wait([closed], timeout=0.2)
                peer.send(bytes((byte,)))
            await closed


@pytest.mark.parametrize("begin", [b"", PREFACE + settings() + frame(Kind.HEADERS, 0, 1, _PART)])
async def test_many_connections_that_do_nothing(address, begin):
    before = rss_bytes_now()
    peers = []
    host, port = address.split(":")
    for _ in range(400):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(begin)
        peers.append((reader, writer))
    async with connect(address) as peer, within(1):
        assert (await peer.call(1, EMPTY)).grpc_status == "0"
    assert rss_bytes_now() - before < 100 * MIB  # of both ends
    for _, writer in peers:
        writer.transport.abort()
    await asyncio.sleep(0)


async def test_calls_that_wait_for_their_message_are_bounded():
    """A head costs a client ten bytes, and may be left at that: the oldest are given up."""
    few = GrpcSettings(max_concurrent=10)
    async with serving(few) as (_, address), connect(address) as peer, connect(address) as other:
        for i in IDS[:30]:
            peer.send(headers(i, call_fields(UNARY)))
        for i in IDS[:20]:
            assert (await peer.finished(i)).grpc_status == "14"
        assert (await other.call(1, EMPTY)).grpc_status == "0"
        assert (await peer.finished(IDS[20])).grpc_status == "14"
        for i in IDS[21:30]:
            peer.send(data(i, message(b"\x0a\x01x"), end=True))
            assert (await peer.finished(i)).grpc_status == "0"


async def test_health_is_answered_among_calls_and_bounded_by_itself():
    few = GrpcSettings(max_concurrent=10)
    watch, check = (f"/grpc.health.v1.Health/{method}" for method in ("Watch", "Check"))
    async with serving(few) as (service, address), connect(address) as peer:
        for i in IDS[:10]:
            peer.send(call(i, HOLD))
        await eventually(lambda: service.active == 10)
        assert (await peer.call(IDS[10], EMPTY)).grpc_status == "14"
        assert (await peer.call(IDS[11], check)).grpc_status == "0"
        for i in IDS[12:22]:
            peer.send(call(i, watch))
        refused = await peer.call(IDS[22], watch)
        assert refused.grpc_status == "14"
        assert not [i for i in IDS[12:22] if peer.answer(i).done]


async def test_messages_that_never_end_are_bounded(address):
    """Each stream may send 4 MiB of a message; a client may do so on 16 of them."""
    ids = IDS[:48]
    async with connect(address) as peer:
        start = b"\0" + (4 * MIB - 100).to_bytes(4) + bytes(4 * MIB - 200)
        pieces = (
            headers(i, call_fields(UNARY))
            + b"".join(data(i, start[at : at + 16_000]) for at in range(0, len(start), 16_000))
            for i in ids
        )
        cost = await flood(address, peer, pieces)
        await peer.round_trip()
        refused = sum(peer.answer(i).grpc_status == "14" for i in ids)
        assert refused >= len(ids) - 16
        # 64 MiB are kept; the rest is what buffers and the allocator leave unused, of both ends.
        assert cost.memory < 144 * MIB < cost.sent, cost
        assert cost.wait < 2, cost


async def test_messages_of_all_clients_that_never_end_are_bounded():
    """The oldest are given up, on whichever connection they come."""
    few = serving(unfinished=Unfinished(3 * MIB + 100))
    async with few as (_, address), connect(address) as slow, connect(address) as other:
        part = b"\0" + MIB.to_bytes(4) + b"\x0a\xfc\xff\x3f" + bytes(MIB - 100_000)
        pieces = [part[at : at + 16_000] for at in range(0, len(part), 16_000)]
        for i in IDS[:4]:  # each has room for a message, which is more than came
            slow.send(headers(i, call_fields(UNARY)), *(data(i, piece) for piece in pieces))
        assert (await slow.finished(1)).grpc_status == "14"
        await slow.round_trip()
        assert not slow.answer(IDS[1]).done
        assert (await other.call(1, UNARY, bytes(0))).grpc_status == "0"


async def test_answers_that_nobody_reads_are_bounded(echo):
    """The socket is full, the windows are not."""
    service, address = echo
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        peer.send(window_update(0, 2**30))
        before = rss_bytes_now()
        for i in IDS[:200]:
            peer.send(call(i, FLOOD, UInt64Value(value=10_000).SerializeToString()))
        await eventually(lambda: service.active == 200)
        async with connect(address) as other:
            for i in IDS[:100]:
                await other.call(i, EMPTY)
        assert rss_bytes_now() - before < 150 * MIB
    await eventually(lambda: service.active == 0)


def rss_bytes_now() -> int:
    return rss_bytes(os.getpid())
