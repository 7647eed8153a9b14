"""Messages out of a stream of bytes, and into it: what is copied, and what room is made for."""

import gzip

import pytest

from baton.errors import BatonError, Reason
from baton.rpc.wire.compression import GZIP
from baton.rpc.wire.messages import PREFIX_BYTES, MessageReader, frame_message

MIB = 1 << 20


def prefix(size: int, *, compressed: bool = False) -> bytes:
    return bytes([compressed]) + size.to_bytes(4)


def test_what_is_read_into_its_room_is_not_copied() -> None:
    reader = MessageReader(4 * MIB)
    body = bytes(range(256)) * 4096
    assert reader.feed(prefix(MIB) + body[:100_000]) == []
    filled = 100_000
    while filled < MIB:
        room = reader.room(300_000)
        assert room is not None
        read = room[: min(len(room), 200_000)]
        read[:] = body[filled : filled + len(read)]
        filled += len(read)
        messages = reader.feed(read)
    assert messages == [body]
    assert messages[0] is room.obj
    assert reader.partial_bytes == 0 and reader.room(1) is None


def test_pieces_from_elsewhere_go_where_they_belong() -> None:
    reader = MessageReader(4 * MIB)
    data = memoryview(prefix(600) + b"a" * 600 + prefix(3) + b"end" + prefix(500) + b"b" * 499)
    messages = [one for at in range(0, len(data), 7) for one in reader.feed(data[at : at + 7])]
    assert messages == [b"a" * 600, b"end"]
    assert reader.feed(b"b" + prefix(0)) == [b"b" * 500, b""]


def test_a_message_keeps_nothing_of_the_view_that_it_came_in() -> None:
    buffer = bytearray(prefix(4) + b"once" + prefix(8) + b"half")
    reader = MessageReader(100)
    messages = reader.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert messages + reader.feed(b"half") == [b"once", b"halfhalf"]


def test_a_length_alone_makes_no_room() -> None:
    reader = MessageReader(4 * MIB)
    reader.feed(prefix(4 * MIB))
    assert reader.partial_bytes == PREFIX_BYTES
    reader.feed(bytes(100))
    assert reader.partial_bytes <= PREFIX_BYTES + 1600
    reader.feed(bytes(MIB))
    assert reader.partial_bytes == PREFIX_BYTES + 4 * MIB


def test_room_is_counted_until_the_message_is_whole() -> None:
    reader = MessageReader(4 * MIB)
    for size in (1, 2, 5):
        reader.feed(prefix(10)[:size])
        assert reader.partial_bytes > 0
        reader = MessageReader(4 * MIB)
    reader.feed(prefix(10) + bytes(10))
    assert reader.partial_bytes == 0


def test_a_long_message_may_be_compressed() -> None:
    packed = gzip.compress(bytes(range(256)) * 100)
    reader = MessageReader(MIB, GZIP)
    wire = prefix(len(packed), compressed=True) + packed
    assert reader.feed(wire[:50]) == []
    assert reader.feed(wire[50:]) == [bytes(range(256)) * 100]


@pytest.mark.parametrize("head", [prefix(101), b"\2" + bytes(4)])
def test_a_head_that_is_wrong_is_refused_before_the_rest_comes(head: bytes) -> None:
    reader = MessageReader(100)
    reader.feed(head[:3])
    with pytest.raises(BatonError) as raised:
        reader.feed(head[3:])
    assert raised.value.reason in (Reason.BODY_TOO_LARGE, Reason.MALFORMED_BODY)


def test_parts_are_sent_from_where_they_lie() -> None:
    data = memoryview(bytearray(b"x" * 1000))
    framed = frame_message((b"head", data, data[:10]))
    assert b"".join(framed) == prefix(1014) + b"head" + b"x" * 1010
    assert framed[1] is data
