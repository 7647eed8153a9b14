"""The windows of clients, and what waits for them (RFC 9113, sections 5.2 and 6.9)."""

import asyncio

import pytest
from google.protobuf.struct_pb2 import ListValue, Value
from google.protobuf.wrappers_pb2 import BytesValue, UInt64Value

from tests.support.grpc.echo_service import EMPTY, FLOOD, PRODUCE, UNARY
from tests.support.http2.frames import (
    SETTINGS_ACK,
    Kind,
    Setting,
    data,
    reset,
    settings,
    window_update,
)
from tests.support.http2.headers import call, call_fields, headers, message
from tests.support.http2.peer import Peer, connect
from tests.support.wait import eventually

WINDOW = Setting.INITIAL_WINDOW_SIZE
DEFAULT = 65_535


def echo(size: int) -> bytes:
    return BytesValue(value=bytes(size)).SerializeToString()


async def came(peer: Peer, stream_id: int = 1) -> int:
    """Return how many bytes of DATA have come once nothing more is on its way."""
    await peer.round_trip()
    return len(peer.answer(stream_id).body)


@pytest.fixture
async def narrow(address):
    """A connection whose streams may be sent one byte."""
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 1))
        await peer.wait(Kind.SETTINGS)
        peer.send(SETTINGS_ACK)
        yield peer


async def first_byte(peer: Peer) -> None:
    while not peer.answer().body:
        await peer.receive()


async def test_no_more_is_sent_than_the_stream_window(narrow):
    narrow.send(call(1, UNARY, echo(100)))
    await first_byte(narrow)
    assert await came(narrow) == 1
    narrow.send(window_update(1, 2))
    assert await came(narrow) == 3
    assert not narrow.answer().done
    narrow.send(window_update(1, 1000))
    answer = await narrow.finished()
    assert (len(answer.body), answer.grpc_status) == (107, "0")


async def test_trailers_need_no_window(narrow):
    narrow.send(window_update(0, 1), settings((WINDOW, 0)))
    await narrow.wait(Kind.SETTINGS, ack=True)
    answer = await narrow.call(1, f"{UNARY}x")
    assert answer.grpc_status == "12"


async def test_a_setting_opens_streams_that_wait(narrow):
    narrow.send(call(1, UNARY, echo(100)))
    await first_byte(narrow)
    narrow.send(settings((WINDOW, 50)))
    assert await came(narrow) == 50
    narrow.send(settings((WINDOW, DEFAULT)))
    assert (await narrow.finished()).grpc_status == "0"


async def test_a_setting_makes_a_window_negative(address):
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 100))
        peer.send(call(1, UNARY, echo(1000)))
        while len(peer.answer().body) < 100:
            await peer.receive()
        peer.send(settings((WINDOW, 10)), window_update(1, 90))  # -90, then 0
        assert await came(peer) == 100
        peer.send(window_update(1, 1))
        assert await came(peer) == 101
        peer.send(settings((WINDOW, 20)))
        assert await came(peer) == 111
        peer.send(window_update(1, 5000))
        assert (await peer.finished()).grpc_status == "0"


async def test_no_more_is_sent_than_the_connection_window(address):
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        for stream_id in (1, 3, 5):
            peer.send(call(stream_id, UNARY, echo(40_000)))
        seen = 0
        while seen < DEFAULT:
            await peer.receive()
            seen = sum(len(answer.body) for answer in peer.answers.values())
        await peer.round_trip()
        seen = sum(len(answer.body) for answer in peer.answers.values())
        assert seen == DEFAULT
        peer.send(window_update(0, 2**30))
        for stream_id in (1, 3, 5):
            assert len((await peer.finished(stream_id)).body) == 40_009


async def test_a_stream_whose_window_is_shut_holds_up_no_other(narrow):
    narrow.send(call(1, UNARY, echo(50_000)))
    await first_byte(narrow)
    narrow.send(settings((WINDOW, DEFAULT)), window_update(1, 1))
    await narrow.finished(1)
    narrow.send(settings((WINDOW, 0)))
    narrow.send(call(3, UNARY, echo(10)), call(5, UNARY, echo(10)), window_update(5, 100))
    assert (await narrow.finished(5)).grpc_status == "0"
    assert await came(narrow, 3) == 0


async def test_frames_are_no_longer_than_the_peer_takes(address):
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        peer.send(window_update(0, 2**30))
        body = message(echo(200_000))
        peer.send(headers(1, call_fields(UNARY)))
        for at in range(0, len(body), 16_000):
            peer.send(data(1, body[at : at + 16_000], end=at + 16_000 >= len(body)))
        assert len((await peer.finished()).body) == len(body)
        assert max(len(got.payload) for got in peer.frames) <= 16_384


async def test_a_stream_that_is_not_read_is_held_and_holds_up_no_other(echo):
    service, address = echo
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 1000))
        peer.send(call(1, FLOOD, UInt64Value(value=10_000).SerializeToString()))
        await first_byte(peer)
        assert (await peer.call(3, EMPTY)).grpc_status == "0"
        assert service.active == 1
        peer.send(reset(1))
        await eventually(lambda: service.active == 0)


async def test_streams_whose_answers_had_to_wait_are_let_go(narrow):
    """More than a connection may have open, one after the other."""
    for stream_id in range(1, 2 * 1100, 2):
        narrow.send(call(stream_id, EMPTY), window_update(stream_id, 100))
        assert (await narrow.finished(stream_id)).grpc_status == "0"


async def test_a_client_that_paused_for_a_moment_gets_everything(address):
    """What waits for many streams does not leave in one piece that looks like a flood."""
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        peer.send(window_update(0, 2**30))
        streams = range(1, 2 * 120, 2)
        for stream_id in streams:
            peer.send(call(stream_id, FLOOD, UInt64Value(value=20).SerializeToString()))
        async with connect(address) as other:  # while this one reads nothing
            for stream_id in range(1, 400, 2):
                await other.call(stream_id, EMPTY)
        for stream_id in streams:
            answer = await peer.finished(stream_id)
            assert (answer.grpc_status, len(answer.body)) == ("0", 20 * 16_393)


async def test_an_answer_of_many_megabytes(address):
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        peer.send(window_update(0, 2**30))
        sizes = ListValue(values=[Value(number_value=6_000_000)])
        answer = await peer.call(1, PRODUCE, sizes.SerializeToString())
        assert (answer.grpc_status, len(answer.body)) == ("0", 6_000_010)


async def test_a_connection_that_is_not_read_holds_up_no_other(echo):
    service, address = echo
    async with connect(address, start=False) as peer:
        peer.start((WINDOW, 2**31 - 1))
        peer.send(window_update(0, 2**30))
        peer.send(call(1, FLOOD, UInt64Value(value=100_000).SerializeToString()))
        await eventually(lambda: service.active == 1)
        async with connect(address) as other:
            for stream_id in range(1, 41, 2):
                assert (await other.call(stream_id, EMPTY)).grpc_status == "0"
            await asyncio.sleep(0)
        assert service.active == 1
    await eventually(lambda: service.active == 0)
