"""More calls and connections than the server takes: clients wait, and keep to its limits."""

import asyncio

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.wrappers_pb2 import BytesValue

from baton.errors import BatonError, Reason
from baton.rpc.channel import channel as channel_module
from baton.rpc.channel.channel import Channel
from baton.rpc.transport.inbox import END
from baton.settings import GrpcSettings
from baton.telemetry import metrics
from bench.harness.metrics import parse_metrics
from tests.support.clock import DEADLINE_SECONDS
from tests.support.grpc.echo_service import EMPTY, HOLD, UNARY, EchoStub, serving
from tests.support.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    SETTINGS_ACK,
    Kind,
    Setting,
    frame,
    settings,
    take,
)
from tests.support.http2.peer import connect
from tests.support.network.listener import listening
from tests.support.wait import eventually

REQUEST = BytesValue(value=b"x")
OPEN = "baton_rpc_connections"
REFUSED = "baton_rpc_connections_refused_total"


class Stub:
    """Of the methods that are called here."""

    def __init__(self, channel: Channel) -> None:
        text, empty = (BytesValue.SerializeToString, Empty.SerializeToString)
        self.Unary = channel.unary_unary(UNARY, text, BytesValue.FromString)
        self.Hold = channel.unary_stream(HOLD, empty, Empty.FromString)


def limited(**limits: int) -> GrpcSettings:
    return GrpcSettings(**limits)  # type: ignore[arg-type]


async def test_calls_beyond_the_servers_limit_wait_for_one_to_end():
    few = serving(limited(max_streams_per_connection=3))
    async with few as (service, address), Channel(address) as channel:
        stub = channel.stub(Stub)
        held = [stub.Hold(Empty(), timeout=20) for _ in range(3)]
        for call in held:
            await call.read()
        waiting = [asyncio.ensure_future(stub.Unary(REQUEST, timeout=20)) for _ in range(50)]
        late = stub.Hold(Empty(), timeout=0.05)
        with pytest.raises(BatonError) as caught:
            await late.read()
        assert caught.value.reason is Reason.DEADLINE
        assert service.began == 3  # the late one was never sent, nor any other
        assert not any(one.done() for one in waiting)
        held[0].cancel()
        assert await asyncio.gather(*waiting) == [REQUEST] * 50
        for call in held:
            call.cancel()


async def test_calls_that_fail_early_make_room_for_others():
    """A call of many messages that the server has ended is over, whatever was still to be said."""
    few = serving(limited(max_streams_per_connection=2))
    async with few as (_, address), Channel(address) as channel:
        missing = channel.stream_stream("/no.Service/Method", bytes, bytes)
        for _ in range(10):
            call = missing(timeout=DEADLINE_SECONDS)
            call.send(b"something")
            with pytest.raises(BatonError):
                await call.read()
        assert await channel.stub(Stub).Unary(REQUEST, timeout=DEADLINE_SECONDS) == REQUEST


async def test_more_calls_than_may_wait_fail_at_once(monkeypatch):
    monkeypatch.setattr(channel_module, "MAX_WAITING", 5)
    few = serving(limited(max_streams_per_connection=1))
    async with few as (_, address), Channel(address) as channel:
        stub = channel.stub(Stub)
        held = stub.Hold(Empty())
        await held.read()
        calls = [stub.Hold(Empty()) for _ in range(6)]
        with pytest.raises(BatonError) as caught:
            await calls[5].read()
        assert caught.value.reason is Reason.NO_CAPACITY
        calls[0].cancel()  # leaves a place
        another = stub.Hold(Empty())
        assert not another.ended
        for call in [held, *calls, another]:
            call.cancel()


class TightServer:
    """Says its settings only when it is told to, and answers each call at once."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        """Stream ids of the calls that came."""
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        buffer = bytearray(await reader.readexactly(len(PREFACE)))
        buffer.clear()
        while piece := await reader.read(1 << 16):
            buffer += piece
            while (got := take(buffer)) is not None:
                if got.kind == Kind.HEADERS:
                    self.heads.append(got.stream_id)

    def say(self, *parts: bytes) -> None:
        assert self.writer is not None
        self.writer.write(b"".join(parts))

    def end(self, stream_id: int) -> None:
        """End a call with a status."""
        block = b"\x88\x00\x0bgrpc-status\x010"  # :status 200
        self.say(frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream_id, block))


async def test_a_client_keeps_to_settings_as_they_change():
    """RFC 9113, sections 5.1.2 and 6.5.2: a hundred before it was told, then as it was told."""
    tight = TightServer()
    async with listening(tight.serve) as port, Channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.unary_stream(EMPTY, bytes, bytes)(b"") for _ in range(130)]
        await eventually(lambda: len(tight.heads) == 100)
        tight.say(settings((Setting.MAX_CONCURRENT_STREAMS, 110)), SETTINGS_ACK)
        await eventually(lambda: len(tight.heads) == 110)
        tight.say(settings((Setting.MAX_CONCURRENT_STREAMS, 0)))
        for stream_id in tight.heads[:50]:
            tight.end(stream_id)
        for call in calls[:50]:
            assert await call.read() is END
        assert len(tight.heads) == 110
        tight.say(settings((Setting.MAX_CONCURRENT_STREAMS, 62)))
        await eventually(lambda: len(tight.heads) == 112)
        for call in calls:
            call.cancel()


async def test_connections_beyond_the_limit_are_closed_before_a_word():
    before, refused = value(OPEN), value(REFUSED)
    few = serving(limited(max_connections=2))
    async with few as (_, address), connect(address) as first, connect(address) as second:
        async with connect(address, start=False) as third:
            assert await third.until_closed() is None
            assert third.frames == []
        assert value(REFUSED) == refused + 1
        assert value(OPEN) == before + 2
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await EchoStub(channel).Empty(Empty(), timeout=DEADLINE_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            async with Channel(address) as own:
                with pytest.raises(BatonError) as lost:
                    await own.stub(Stub).Unary(REQUEST, timeout=DEADLINE_SECONDS)
                assert lost.value.reason is Reason.UNAVAILABLE
            for peer in (first, second):
                assert (await peer.call(1, EMPTY)).grpc_status == "0"
            first.abort()
            await eventually(lambda: value(OPEN) == before + 1)
            await EchoStub(channel).Empty(Empty(), timeout=DEADLINE_SECONDS, wait_for_ready=True)
    assert value(OPEN) == before


def value(name: str) -> float:
    """Return what a metric without labels says."""
    return parse_metrics(metrics.render()[0].decode())[name]
