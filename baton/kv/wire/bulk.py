"""Frames with bulk data, converted to and from wire bytes without copying the data.

The format is protobuf's own: any protobuf library reads and writes the same bytes. A library would
copy the data into its message, then into the wire's bytes, and as often on the other side. Here the
socket receives the data where it lies, and the data are read in place. Chunks have their data last,
so that everything before the data is an ordinary small message.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from baton.internal.v1 import kvstore_pb2 as pb
from baton.rpc.wire.messages import Data, Parts
from baton.rpc.wire.varints import read_varint

_LENGTH_DELIMITED = 2
_DATA_TAG = bytes([pb.ReadChunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_READ_TAG = bytes([pb.GetResponse.READ_CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_WRITE_TAG = bytes([pb.PutRequest.WRITE_CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
assert _DATA_TAG[0] == pb.WriteChunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


class ReadBulk(NamedTuple):
    """A GetResponse with a ReadChunk: the head that precedes the data, and the data."""

    head: pb.ReadChunk
    data: memoryview

    def pieces(self) -> Iterator[tuple[int, int, memoryview]]:
        """Yield lease, offset in its object and bytes of each piece; no bytes: the object was
        evicted.

        Ends early where the data are shorter than the head states.
        """
        at, offset = 0, self.head.offset_bytes
        for lease_id, size in zip(self.head.lease_ids, self.head.pieces_bytes, strict=False):
            yield lease_id, offset, self.data[at : at + size]
            at, offset = at + size, 0


class WriteBulk(NamedTuple):
    """A PutRequest with a WriteChunk."""

    head: pb.WriteChunk
    data: memoryview


def encode(frame: Message | Parts) -> bytes | Parts:
    """Serialize a frame; results of `read_chunk` and `write_chunk` are already serialized."""
    return frame if isinstance(frame, tuple) else frame.SerializeToString()


def read_chunk(head: pb.ReadChunk, parts: Sequence[memoryview]) -> Parts:
    """Serialize a GetResponse with a ReadChunk whose data are the `parts` joined.

    The data are copied: a lease may end, and its slot be overwritten, before the peer has read
    them.
    """
    return _parts(_READ_TAG, head.SerializeToString(), [b"".join(parts)])


def write_chunk(head: pb.WriteChunk, parts: Sequence[memoryview]) -> Parts:
    """Serialize a PutRequest with a WriteChunk whose data are the `parts` joined.

    The parts must not change before the peer has read them.
    """
    return _parts(_WRITE_TAG, head.SerializeToString(), parts)


def decode_get_response(wire: Data) -> pb.GetResponse | ReadBulk:
    """Parse a GetResponse. The data of a chunk refers to `wire`.

    Raises:
        google.protobuf.message.DecodeError: malformed.
    """
    if wire.startswith(_READ_TAG):
        split = _split(wire)
        if split is not None:
            return ReadBulk(pb.ReadChunk.FromString(split[0]), split[1])
        frame = pb.GetResponse.FromString(bytes(wire))
        if frame.HasField("read_chunk"):
            return ReadBulk(frame.read_chunk, memoryview(frame.read_chunk.data))
        return frame
    return pb.GetResponse.FromString(bytes(wire))


def decode_put_request(wire: Data) -> pb.PutRequest | WriteBulk:
    """Parse a PutRequest. The data of a chunk refers to `wire`.

    Raises:
        google.protobuf.message.DecodeError: malformed.
    """
    if wire.startswith(_WRITE_TAG):
        split = _split(wire)
        if split is not None:
            return WriteBulk(pb.WriteChunk.FromString(split[0]), split[1])
        frame = pb.PutRequest.FromString(bytes(wire))
        if frame.HasField("write_chunk"):
            return WriteBulk(frame.write_chunk, memoryview(frame.write_chunk.data))
        return frame
    return pb.PutRequest.FromString(bytes(wire))


def _parts(tag: bytes, head: bytes, parts: Sequence[bytes | memoryview]) -> Parts:
    size = sum([len(part) for part in parts])
    if size:
        head += _DATA_TAG + _varint(size)
    return (b"".join((tag, _varint(len(head) + size), head)), *(parts if size else ()))


def _split(wire: Data) -> tuple[bytes, memoryview] | None:
    """Return head and data of the chunk that fills `wire`; None if it is not such a chunk.

    Walks over the fields up to the data, which must extend to the end of both messages.
    """
    try:
        size, at = read_varint(wire, 1)
        if at + size != len(wire):
            return None
        begin = at
        while at < len(wire):
            start = at
            tag, at = read_varint(wire, at)
            if tag & 7 == 0:
                _, at = read_varint(wire, at)
                continue
            if tag & 7 != _LENGTH_DELIMITED:
                return None
            size, at = read_varint(wire, at)
            if tag == _DATA_TAG[0]:
                if at + size != len(wire):
                    return None
                return bytes(wire[begin:start]), memoryview(wire)[at:]
            at += size
    except IndexError:  # truncated: the library reports the error
        return None
    return None


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
