"""How connections begin, are kept, and end (RFC 9113, sections 3.4, 5.1.2, 6.5.3, 6.7 and 6.8)."""

import asyncio
import gzip
import socket

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hpack import Encoder

from baton.rpc.server import connection
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from tests.support.clock import within
from tests.support.grpc.echo_service import EMPTY, HOLD, SERVICE, UNARY, EchoService, serving
from tests.support.http2.frames import (
    ACK,
    END_HEADERS,
    PREFACE,
    SETTINGS_ACK,
    Code,
    Kind,
    Setting,
    data,
    frame,
    goaway,
    ping,
    settings,
)
from tests.support.http2.headers import call, call_fields, headers, literal, message
from tests.support.http2.peer import connect
from tests.support.wait import eventually


async def test_the_server_says_its_settings_first(address):
    async with connect(address, start=False) as peer:
        peer.start()
        first = await peer.receive()
        assert (first.kind, first.flags, first.stream_id) == (Kind.SETTINGS, 0, 0)


async def test_settings_are_acknowledged_once_each(address):
    async with connect(address, start=False) as peer:
        peer.start()
        peer.send(settings(), settings((Setting.MAX_FRAME_SIZE, 20_000)), SETTINGS_ACK)
        await peer.round_trip()
        await peer.round_trip()
        acks = [got for got in peer.frames if got.kind == Kind.SETTINGS and got.flags]
        assert [(got.flags, got.payload) for got in acks] == [(1, b"")] * 3


async def test_ping_is_answered_with_its_payload(address):
    async with connect(address) as peer:
        peer.send(ping(b"01234567"))
        got = await peer.wait(Kind.PING)
        assert (got.flags, got.payload) == (1, b"01234567")


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /v1/chat HTTP/1.1\r\nHost: localhost\r\ncontent-length: 0\r\n\r\n",
        b"INVALID CONNECTION PREFACE\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX" + settings(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # TLS
        b"\0" * 100,
        PREFACE + ping(),
        PREFACE + call(1, EMPTY),
        PREFACE + SETTINGS_ACK,
    ],
    ids=["GET", "POST", "text", "almost", "TLS", "zeros", "PING", "call", "ACK"],
)
async def test_a_preface_that_is_none_ends_the_connection(address, first):
    async with connect(address, start=False) as peer:
        peer.send(first)
        last = await peer.until_closed()
        assert last is None or last.error is Code.PROTOCOL_ERROR


async def test_a_call_byte_by_byte(address):
    """Frames come in whatever pieces."""
    payload = BytesValue(value=b"hello").SerializeToString()
    async with connect(address, start=False) as peer:
        for octet in PREFACE + settings((Setting.MAX_FRAME_SIZE, 16_384)) + call(1, UNARY, payload):
            peer.send(bytes((octet,)))
            await asyncio.sleep(0)
        assert (await peer.finished()).body == message(payload)


async def test_everything_at_once(address):
    """Preface, settings, a thousand pings and calls, in one write."""
    async with connect(address, start=False) as peer:
        calls = b"".join(ping() + call(stream_id, EMPTY) for stream_id in range(1, 199, 2))
        peer.send(PREFACE + settings() + calls)
        for stream_id in range(1, 199, 2):
            assert (await peer.finished(stream_id)).grpc_status == "0"


async def test_headers_of_an_encoder_with_a_dynamic_table(address):
    """As clients send them: indexed, Huffman-coded, with a table that changes and overflows."""
    encoder = Encoder()
    async with connect(address) as peer:
        for number in range(100):
            if number == 40:
                encoder.header_table_size = 100
            if number == 70:
                encoder.header_table_size = 4096
            fields = call_fields(
                UNARY, [(b"x-number", b"%d" % (number // 3)), (b"x-long", b"n" * number)]
            )
            stream_id = 2 * number + 1
            peer.send(frame(Kind.HEADERS, END_HEADERS, stream_id, encoder.encode(fields)))
            peer.send(data(stream_id, message(), end=True))
            assert (await peer.finished(stream_id)).grpc_status == "0"


async def test_a_peer_whose_header_table_is_empty(address):
    async with connect(address, start=False) as peer:
        peer.start((Setting.HEADER_TABLE_SIZE, 0))
        await peer.wait(Kind.SETTINGS, ack=True)
        peer._decoder.header_table_size = 0
        for stream_id in (1, 3, 5):
            assert (await peer.call(stream_id, EMPTY)).grpc_status == "0"


async def test_more_streams_than_the_server_takes_are_refused():
    few = GrpcSettings(max_streams_per_connection=50)
    async with serving(few) as (service, address), connect(address) as peer:
        limit = peer.frames[0].settings.get(Setting.MAX_CONCURRENT_STREAMS)
        assert limit is not None, "the server does not say how many"
        ids = [2 * number + 1 for number in range(limit + 5)]
        for stream_id in ids:
            peer.send(call(stream_id, HOLD))
        await peer.round_trip()
        await peer.round_trip()
        refused = {stream_id for stream_id in ids if peer.answer(stream_id).reset}
        assert refused == set(ids[limit:])
        assert {peer.answer(stream_id).reset for stream_id in refused} == {Code.REFUSED_STREAM}
        await eventually(lambda: service.active == limit)


async def test_calls_over_the_setting_are_refused_and_health_is_not():
    async with serving(GrpcSettings(max_concurrent=2)) as (_, address), connect(address) as peer:
        for stream_id in (1, 3):
            peer.send(call(stream_id, HOLD))
            while not peer.answer(stream_id).body:
                await peer.receive()
        assert (await peer.call(5, EMPTY)).grpc_status == "14"
        assert (await peer.call(7, "/grpc.health.v1.Health/Check")).grpc_status == "0"


async def test_a_server_that_drains_says_so_and_ends_what_runs():
    service = EchoService()
    async with Server(GrpcSettings(), "test") as server:
        server.add(service.register, SERVICE)
        await server.start()
        server.set_ready(True)
        async with connect(server.address) as peer:
            sleep = b"\x10\x80\xc2\xd7\x2f"  # 100 ms
            peer.send(call(5, f"/{SERVICE}/Sleep", sleep))
            await eventually(lambda: service.active == 1)
            drained = asyncio.create_task(server.drain(10))
            answer = await peer.finished(5)
            assert answer.grpc_status == "0"
            await drained
            last = await peer.until_closed()
            assert last is not None and last.error is Code.NO_ERROR
            assert int.from_bytes(last.payload[:4]) >= 5
        with pytest.raises(OSError):
            await asyncio.open_connection(*server.address.split(":"))


async def test_clients_are_told_to_leave_and_lose_no_call():
    """RFC 9113, section 6.8: what a client opened before it heard of the end is served."""
    service = EchoService()
    async with Server(GrpcSettings(), "test") as server:
        server.add(service.register, SERVICE)
        await server.start()
        async with connect(server.address) as peer, connect(server.address) as idle:
            peer.send(call(1, HOLD))
            await eventually(lambda: service.active == 1)
            server.retire_connections()
            server.retire_connections()  # once is enough
            first = await peer.wait(Kind.GOAWAY)
            assert int.from_bytes(first.payload[:4]) == 2**31 - 1
            assert first.error is Code.NO_ERROR
            asked = await peer.wait(Kind.PING)
            assert (await peer.call(3, EMPTY)).grpc_status == "0"  # opened meanwhile
            peer.send(ping(asked.payload, ACK))
            last = await peer.wait(Kind.GOAWAY)
            assert int.from_bytes(last.payload[:4]) == 3
            peer.send(call(5, EMPTY))
            await peer.round_trip()
            assert not peer.answer(5).headers
            assert service.active == 1

            idle.send(ping((await idle.wait(Kind.PING)).payload, ACK))
            await idle.until_closed()
            async with connect(server.address) as new:  # it still listens
                assert (await new.call(1, EMPTY)).grpc_status == "0"
                server.stop_listening()
                assert (await new.wait(Kind.GOAWAY)).error is Code.NO_ERROR
            with pytest.raises(OSError):
                await asyncio.open_connection(*server.address.split(":"))
            assert not peer.answer(1).done


async def test_a_client_that_does_not_hear_that_it_is_to_leave(monkeypatch):
    monkeypatch.setattr(connection, "_RETIRE_SECONDS", 0.05)
    async with Server(GrpcSettings(), "test") as server:
        await server.start()
        async with connect(server.address) as peer:
            server.retire_connections()
            last = await peer.until_closed()
            assert last is not None
            assert int.from_bytes(last.payload[:4]) == 0


async def test_connections_grow_old():
    service = EchoService()
    async with Server(
        GrpcSettings(), "test", max_connection_age_seconds=0.1, max_connection_grace_seconds=0.1
    ) as server:
        server.add(service.register, SERVICE)
        await server.start()
        async with connect(server.address) as peer:
            peer.send(call(1, HOLD))
            await peer.wait(Kind.GOAWAY)
            peer.send(ping((await peer.wait(Kind.PING)).payload, ACK))
            answer = await peer.finished()
            assert answer.grpc_status == "14"
            assert "reached its maximum age" in answer.grpc_message
            await peer.until_closed()


async def test_a_server_that_ends_cuts_what_runs():
    async with serving() as (service, address), connect(address) as peer:
        peer.send(call(1, HOLD))
        await eventually(lambda: service.active == 1)
    assert service.active == 0


async def test_a_client_that_says_goaway_is_answered(address):
    async with connect(address) as peer:
        peer.send(call(1, UNARY), goaway())
        assert (await peer.finished()).grpc_status == "0"


async def test_half_a_connection_still_gets_its_answer(address):
    """The client shut its side for writing: all that it asked for has been asked."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(PREFACE + settings() + call(1, EMPTY))
    writer.write_eof()
    try:
        async with within(10):
            await reader.read()  # answered or not, it is closed
    finally:
        writer.close()


async def test_connections_that_are_dropped_at_any_byte(echo):
    service, address = echo
    whole = PREFACE + settings() + call(1, HOLD) + headers(3, call_fields(UNARY))
    for end in range(0, len(whole), 7):
        with socket.create_connection(address.rsplit(":", 1)) as raw:
            raw.sendall(whole[:end])
    async with connect(address) as peer:
        assert (await peer.call(1, EMPTY)).grpc_status == "0"
    await eventually(lambda: service.active == 0)


async def test_large_header_blocks_in_continuations(address):
    many = b"".join(literal(b"x-field-%d" % number, b"v" * 60) for number in range(80))
    block = b"".join(literal(name, value) for name, value in call_fields(EMPTY)) + many
    async with connect(address) as peer:
        middle = len(block) // 2
        peer.send(
            frame(Kind.HEADERS, 0, 1, block[:middle]),
            frame(Kind.CONTINUATION, END_HEADERS, 1, block[middle:]),
            data(1, message(), end=True),
        )
        assert (await peer.finished()).grpc_status == "0"


async def test_compressed_and_plain_connections_beside_each_other(address):
    payload = BytesValue(value=b"x" * 100).SerializeToString()
    async with connect(address) as one, connect(address) as other:
        body = message(gzip.compress(payload), compressed=True)
        fields = call_fields(UNARY, [(b"grpc-encoding", b"gzip")])
        one.send(headers(1, fields), data(1, body, end=True))
        other.send(call(1, UNARY, payload))
        assert (await one.finished()).grpc_status == (await other.finished()).grpc_status == "0"
