"""Bulk frames are written and read by hand: byte for byte as protobuf does it."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.wire import bulk

numbers = st.integers(0, (1 << 63) - 1)
parts = st.lists(st.binary(max_size=300), max_size=5)


@given(st.lists(numbers, max_size=5), numbers, parts)
def test_a_read_chunk_is_what_protobuf_makes_of_it(leases, offset, pieces):
    head = pb.ReadChunk(lease_ids=leases, offset_bytes=offset)
    wire = b"".join(bulk.read_chunk(head, [memoryview(piece) for piece in pieces]))
    data = b"".join(pieces)
    whole = pb.ReadChunk(lease_ids=leases, offset_bytes=offset, data=data)
    assert wire == pb.GetResponse(read_chunk=whole).SerializeToString()
    frame = bulk.decode_get_response(wire)
    assert isinstance(frame, bulk.ReadBulk)
    assert (frame.head, bytes(frame.data)) == (head, data) or (frame.head == whole and not data)


@given(st.lists(st.integers(0, 4095), max_size=5), numbers, numbers, parts)
def test_a_write_chunk_is_what_protobuf_makes_of_it(indexes, number, offset, pieces):
    head = pb.WriteChunk(correlation_id=number, indexes=indexes, offset_bytes=offset)
    wire = b"".join(bulk.write_chunk(head, [memoryview(piece) for piece in pieces]))
    whole = pb.WriteChunk()
    whole.CopyFrom(head)
    whole.data = b"".join(pieces)
    assert pb.PutRequest.FromString(wire) == pb.PutRequest(write_chunk=whole)
    frame = bulk.decode_put_request(wire)
    assert isinstance(frame, bulk.WriteBulk)
    assert (frame.head.indexes, bytes(frame.data)) == (indexes, whole.data)


def test_data_that_does_not_come_last_is_found_too():
    inner = b"\x7a\x03abc" + pb.WriteChunk(correlation_id=7).SerializeToString()
    frame = bulk.decode_put_request(b"\x1a" + bytes([len(inner)]) + inner)
    assert isinstance(frame, bulk.WriteBulk)
    assert (frame.head.correlation_id, bytes(frame.data)) == (7, b"abc")


@given(st.binary(max_size=60))
def test_what_protobuf_refuses_is_refused_and_all_else_means_the_same(tail):
    for tag, decode, message in (
        (b"\x1a", bulk.decode_put_request, pb.PutRequest),
        (b"\x1a", bulk.decode_get_response, pb.GetResponse),
    ):
        wire = tag + tail
        try:
            expected = message.FromString(wire)
        except DecodeError:
            with pytest.raises(DecodeError):
                decode(wire)
            continue
        frame = decode(wire)
        if isinstance(frame, tuple):
            chunk = getattr(expected, expected.WhichOneof("frame"))
            assert bytes(frame.data) == chunk.data
        else:
            assert frame == expected


@pytest.mark.parametrize("frame", [pb.PutRequest(open=pb.Open(session_id="s"))])
def test_other_frames_go_through_the_library(frame):
    assert bulk.decode_put_request(bulk.encode(frame)) == frame
