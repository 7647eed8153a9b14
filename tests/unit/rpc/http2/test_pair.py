"""Both ends of HTTP/2 with one another."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.limits import ConnectionLimits
from tests.support.examples import examples
from tests.unit.rpc.http2.pair import REQUEST, RESPONSE, TRAILERS, Side, give, pair, settle


def test_a_call():
    client, server = pair()
    call = client.open()
    client.http2.send_data(call.stream, b"question", end=True)
    settle(client, server)
    served = server.owners[0]
    assert (bytes(served.data), served.ended) == (b"question", True)
    server.http2.send_headers(served.stream, RESPONSE)
    server.http2.send_data(served.stream, b"answer")
    server.http2.send_headers(served.stream, TRAILERS, end=True)
    settle(client, server)
    assert bytes(call.data) == b"answer"
    assert [fields[0][0] for fields in call.headers] == [b":status", b"grpc-status"]
    assert not client.http2.streams and not server.http2.streams


@settings(max_examples=examples(24))
@given(
    window=st.integers(1, 70_000),
    connection=st.integers(65_535, 200_000),
    writes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30_000)), min_size=1, max_size=40),
    holds=st.booleans(),
)
# More than the connection's window lets go at once, and more than it is opened for at first.
@example(window=70_000, connection=65_535, writes=[(i % 5, 30_000) for i in range(40)], holds=False)
def test_all_that_is_sent_arrives_whatever_the_windows_are(window, connection, writes, holds):
    client, server = pair(
        ConnectionLimits(stream_window=window, connection_window=connection),
        ConnectionLimits(frame_burst=1e9),
    )
    calls = [client.open(end=True) for _ in range(5)]
    settle(client, server)
    for served in server.owners:
        server.http2.send_headers(served.stream, RESPONSE)
    sent = [bytearray() for _ in calls]
    for number, (index, size) in enumerate(writes):
        # A small window opens a hundred times for each write, and not ten thousand times.
        data = bytes((number,)) * min(size, 100 * window)
        server.http2.send_data(server.owners[index].stream, data)
        sent[index] += data
        if holds and number % 3 == 0:
            server.http2.hold_data()
        client.http2.receive(server.take_output())
        server.http2.release_data()
    for served in server.owners:
        server.http2.send_headers(served.stream, TRAILERS, end=True)
    _read_all(client, server, calls)
    assert [bytes(call.data) for call in calls] == sent
    assert all(call.ended and len(call.headers) == 2 for call in calls)
    assert not client.http2.streams and not server.http2.streams
    assert client.closed is server.closed is None


def _read_all(client: Side, server: Side, calls: list) -> None:
    """Pass bytes to and fro while the client gives back what it has read."""
    read = [0] * len(calls)
    while True:
        settle(client, server)
        moved = False
        for number, call in enumerate(calls):
            if fresh := len(call.data) - read[number]:
                read[number] += fresh
                moved = True
                client.http2.acknowledge(call.stream, fresh)
        if not moved:
            return


def test_a_handler_that_never_waits_is_told_that_much_waits():
    """Even where the client's windows are without bounds: they are no measure of its reading."""
    client, server = pair(ConnectionLimits(stream_window=2**30, connection_window=2**30))
    client.open(end=True)
    settle(client, server)
    stream = server.owners[0].stream
    server.http2.send_headers(stream, RESPONSE)
    sent = 0
    while stream.waiting_bytes < 64 * 1024:
        server.http2.send_data(stream, bytes(1000))
        sent += 1000
        assert sent < 2**20
    settle(client, server)
    assert stream.waiting_bytes == 0 and server.owners[0].drained


def test_a_half_close_needs_no_window():
    client, server = pair(server=ConnectionLimits(stream_window=1000))
    call = client.open()
    client.http2.send_data(call.stream, bytes(1000))
    client.http2._sender.initial_window_changed(10, [call.stream])  # -990
    client.http2.send_data(call.stream, b"", end=True)
    settle(client, server)
    assert server.owners[0].ended


def test_no_more_streams_after_a_goaway():
    client, server = pair()
    early = client.open(end=True)
    settle(client, server)
    server.http2.refuse_new(last=False)
    on_its_way = client.open(end=True)
    settle(client, server)
    server.http2.refuse_new(last=True)
    late = client.open(end=True)
    settle(client, server)
    assert len(server.owners) == 2
    assert [last for last, _ in client.goaways] == [2**31 - 1, on_its_way.stream.id]
    assert late.reset is ErrorCode.REFUSED_STREAM
    assert early.reset is on_its_way.reset is None


def test_streams_of_a_lost_connection_end():
    client, server = pair()
    call = client.open()
    settle(client, server)
    client.http2.lost("gone")
    server.http2.lost("gone")
    assert call.reset is server.owners[0].reset is ErrorCode.CANCEL


def test_a_ping_comes_back():
    client, server = pair()
    client.http2.ping(b"12345678")
    settle(client, server)
    assert client.pongs == [b"12345678"]


@pytest.mark.parametrize("per_second", [1, 99])
def test_what_a_peer_may_cost_grows_back_with_time(per_second):
    limits = ConnectionLimits(reply_burst=100, replies_per_second=100.0)
    client, server = pair(server=limits)
    for second in range(20):
        server.now = float(second)
        for _ in range(per_second):
            client.http2.ping(b"12345678")
        settle(client, server)
    assert server.closed is None
    for _ in range(201):
        client.http2.ping(b"12345678")
    settle(client, server)
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM


def test_a_ping_each_time_that_data_comes_is_no_flood():
    """grpc-go measures the round trip of what it is sent, without pause."""
    client, server = pair(server=ConnectionLimits(reply_burst=20, replies_per_second=0.0))
    client.open(end=True)
    settle(client, server)
    stream = server.owners[0].stream
    server.http2.send_headers(stream, RESPONSE)
    for _ in range(500):
        server.http2.send_data(stream, bytes(40))
        client.http2.ping(b"12345678")
        settle(client, server)
    assert server.closed is None and len(client.pongs) == 500
    for _ in range(30):
        client.http2.ping(b"12345678")
    settle(client, server)
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM


def test_only_calls_that_have_no_answer_yet_are_reset_rapidly():
    """A client may stop reading as often as it likes."""
    limits = ConnectionLimits(reset_burst=20, resets_per_second=0.0, max_streams=20)
    client, server = pair(server=limits)
    for number in range(100):
        call = client.open(end=True)
        settle(client, server)
        server.http2.send_headers(server.owners[number].stream, RESPONSE)
        settle(client, server)
        client.http2.reset(call.stream, ErrorCode.CANCEL)
    settle(client, server)
    assert server.closed is None and not server.http2.streams
    for _ in range(21):
        client.http2.reset(client.open(end=True).stream, ErrorCode.CANCEL)
    settle(client, server)
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM


def test_a_client_knows_how_many_streams_it_may_open():
    client, server = pair(server=ConnectionLimits(max_streams=2))
    assert client.told == 1
    first, _ = client.open(end=True), client.open(end=True)
    assert not client.http2.has_room
    settle(client, server)
    server.http2.send_headers(server.owners[0].stream, RESPONSE + TRAILERS, end=True)
    settle(client, server)
    assert first.ended and client.http2.has_room


def test_a_client_whose_ids_are_used_up_opens_no_more():
    client, server = pair()
    client.http2._streams._next_local = 2**31 - 1
    assert client.http2.has_room
    last = client.open(end=True)
    assert client.http2.used_up and not client.http2.has_room
    settle(client, server)
    server.http2.send_headers(server.owners[0].stream, RESPONSE + TRAILERS, end=True)
    settle(client, server)
    assert last.ended


def test_a_block_in_pieces_has_so_long_as_a_whole_one():
    client, server = pair(server=ConnectionLimits(unfinished_seconds=10))
    block = frames.header_frames(1, REQUEST, True, 8)
    first, rest = block[:17], block[17:]
    server.http2.receive(first)
    server.now = 6.0
    server.http2.receive(rest[:17])
    server.http2.expire_unfinished()
    assert server.closed is None
    server.now = 10.5
    server.http2.receive(rest[17:18])
    server.http2.expire_unfinished()
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM
    settle(client, server)
    assert client.goaways == [(0, ErrorCode.ENHANCE_YOUR_CALM)]


def test_whole_frames_are_not_taken_for_one_that_lasts():
    """Of bulk data there is always one that is not whole."""
    client, server = pair(server=ConnectionLimits(unfinished_seconds=10))
    client.open()
    settle(client, server)
    frame = frames.frame(codes.DATA, 0, 1, bytes(1000))
    server.http2.receive(frame[:100])
    for _ in range(20):
        server.now += 6.0
        server.http2.receive(frame[100:] + frame[:100])
        server.http2.expire_unfinished()
    assert server.closed is None
    server.now += 6.0
    server.http2.receive(frame[100:])
    server.now += 100.0
    server.http2.expire_unfinished()
    assert server.closed is None


def test_a_client_that_was_held_up_may_open_all_its_windows_again():
    client, server = pair(
        server=ConnectionLimits(max_streams=10, frame_burst=50, frames_per_second=0)
    )
    calls = [client.open(end=True) for _ in range(10)]
    settle(client, server)
    for served in server.owners:
        server.http2.send_headers(served.stream, RESPONSE)
    for _ in range(30):
        for served in server.owners:
            server.http2.send_data(served.stream, bytes(20))
    settle(client, server)
    late = b"".join(frames.window_update(call.stream.id, 20) for call in calls)
    give(server, late * 30)
    assert server.closed is None
    give(server, late * 10)  # nothing was sent that calls for these
    assert server.closed is ErrorCode.ENHANCE_YOUR_CALM


def test_what_comes_of_frames_counts_for_a_turn():
    client, server = pair()
    call = client.open()
    settle(client, server)
    served = server.owners[0]
    take = served.on_data

    def dear(data: bytes, end: bool) -> None:
        server.http2.charge(3000)
        take(data, end)

    served.on_data = dear
    for _ in range(10):
        client.http2.send_data(call.stream, b"x")
    turns = [server.http2.receive(client.take_output())]
    while turns[-1]:
        turns.append(server.http2.receive(b""))
    assert turns == [True, True, True, False]
    assert bytes(served.data) == b"x" * 10
