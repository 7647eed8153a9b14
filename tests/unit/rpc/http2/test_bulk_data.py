"""Bulk data passes a connection without being kept or copied, and within its limits."""

import pytest

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.limits import BULK_LIMITS, ConnectionLimits
from tests.support.http2.frames import PADDED, Kind, data, frame, reset
from tests.unit.rpc.http2.pair import RESPONSE, Owner, Side, pair, settle

MIB = 1 << 20


def called(limits: ConnectionLimits = BULK_LIMITS) -> tuple[Side, Side, Owner]:
    """Return a client, a server and the owner of a call at the server."""
    client, server = pair(server=limits)
    client.open()
    settle(client, server)
    return client, server, server.owners[0]


def test_data_is_passed_on_as_it_comes():
    _, server, call = called()
    wire = data(1, b"0123456789" * 1000, end=True)
    for at in range(0, len(wire), 1000):
        server.http2.receive(wire[at : at + 1000])
        assert len(call.data) == max(0, min(at + 1000, len(wire)) - 9)
        assert call.ended is (at + 1000 >= len(wire))
    assert call.data == b"0123456789" * 1000


def test_a_view_is_used_up_when_receive_returns():
    _, server, call = called()
    wire = bytearray(data(1, b"whole") + data(1, b"parts") + frame(Kind.PING, 0, 0, b"12345678"))
    server.http2.receive(memoryview(wire)[:22])
    rest = bytes(wire[22:])
    wire[:] = bytes(len(wire))
    server.http2.receive(memoryview(rest))
    assert call.data == b"wholeparts"
    assert server.take_output() == frame(Kind.PING, 1, 0, b"12345678")


def test_the_rest_of_a_frame_goes_where_its_owner_wants_it():
    class Placed(Owner):
        def read_into(self, size: int) -> memoryview:
            assert size == 900
            return memoryview(place)[:size]

    place = bytearray(1000)
    _, server, call = called()
    call.__class__ = Placed
    assert server.http2.read_into() is None
    wire = data(1, b"x" * 1000)
    server.http2.receive(wire[:109])
    room = server.http2.read_into()
    assert room is not None and room.obj is place
    room[:] = wire[109:]
    server.http2.receive(room)
    assert call.data == b"x" * 1000
    assert server.http2.read_into() is None


@pytest.mark.parametrize("by", ["this process", "the peer's fault"])
def test_the_rest_of_a_frame_of_a_stream_that_ended_is_passed_over(by):
    client, server, call = called()
    client.open()
    settle(client, server)
    if by == "this process":
        wire = data(1, bytes(1000))
        server.http2.receive(wire[:500])
        server.http2.reset(call.stream, ErrorCode.CANCEL)
        heard = len(call.data)
    else:
        wire, heard = data(1, bytes(BULK_LIMITS.stream_window + 1)[:MIB]), 0
        call.stream.receive_window = 10
        server.http2.receive(wire[:500])
        assert call.reset is ErrorCode.FLOW_CONTROL_ERROR
    assert server.http2.read_into() is None
    server.http2.receive(wire[500:] + data(3, b"next"))
    assert len(call.data) == heard
    assert server.owners[1].data == b"next" and server.closed is None


def test_a_stream_that_both_sides_ended_hears_no_more_of_its_last_frame():
    _, server, call = called()
    wire = data(1, bytes(1000), end=True)
    server.http2.receive(wire[:500])
    server.http2.send_headers(call.stream, RESPONSE, end=True)
    server.http2.receive(wire[500:])
    assert len(call.data) == 491
    assert not server.http2.streams and server.closed is None
    server.take_output()
    server.http2.receive(data(1, b"x"))
    assert server.take_output() == reset(1, ErrorCode.STREAM_CLOSED)


@pytest.mark.parametrize(
    "kind, flags", [(Kind.PING, 0), (Kind.HEADERS, 0), (0xEE, 0), (Kind.DATA, PADDED)]
)
def test_no_long_frame_is_kept_until_it_is_whole(kind, flags):
    _, server, _ = called()
    head = frame(kind, flags, 1, bytes(64 * 1024 + 1))[:9]
    server.http2.receive(head)
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM


def test_a_frame_is_no_longer_than_the_limit():
    _, server, call = called()
    server.http2.receive(data(1, bytes(MIB))[:100])
    assert len(call.data) == 91
    server.http2.receive(bytes(MIB - 91) + data(1, bytes(MIB + 1))[:9])
    assert server.closed is ErrorCode.FRAME_SIZE_ERROR


def test_large_data_is_written_from_where_it_lies():
    client, _, _ = called()
    call = client.open()
    source = bytearray(100_000)
    client.http2.send_data(call.stream, b"head")
    client.http2.send_data(call.stream, memoryview(source))
    pieces = client.http2.take_output()
    there = [one for one in pieces if isinstance(one, memoryview) and one.obj is source]
    assert sum(map(len, there)) == len(source)


def test_small_data_is_written_in_one_piece():
    client, _, _ = called()
    for _ in range(3):
        client.http2.send_data(client.open().stream, bytes(1000))
    assert len(client.http2.take_output()) == 1
    assert client.http2.take_output() == []
