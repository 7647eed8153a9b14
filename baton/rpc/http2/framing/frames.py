"""Frames as bytes (RFC 9113, section 4.1)."""

from collections.abc import Iterable
from struct import Struct

from baton.rpc.http2.framing import codes
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure

HEAD_BYTES = 9
_HEAD = Struct(">BHBBI")
_SETTING = Struct(">HI")
_NUMBER = Struct(">I")
_GOAWAY = Struct(">II")

unpack_head = _HEAD.unpack_from
"""(buffer, offset) -> length >> 16, length & 0xffff, type, flags, stream id and reserved bit."""
pack_head = _HEAD.pack
"""The same five numbers -> 9 bytes."""


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame of any kind."""
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream_id) + payload


def settings(values: Iterable[tuple[int, int]]) -> bytes:
    """Return a SETTINGS frame of (identifier, value) pairs."""
    return frame(codes.SETTINGS, 0, 0, b"".join([_SETTING.pack(*pair) for pair in values]))


def unpack_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the (identifier, value) pairs of a payload whose length is a multiple of 6."""
    return list(_SETTING.iter_unpack(payload))


def unpad(payload: bytes) -> bytes:
    """Return the payload of a PADDED frame without its padding.

    Raises:
        ConnectionFailure: there is more padding than payload.
    """
    if not payload or payload[0] >= len(payload):
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(codes.WINDOW_UPDATE, 0, stream_id, _NUMBER.pack(increment))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(codes.RST_STREAM, 0, stream_id, _NUMBER.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, message: str) -> bytes:
    payload = _GOAWAY.pack(last_stream_id, code) + message.encode()[:256]
    return frame(codes.GOAWAY, 0, 0, payload)


def header_frames(stream_id: int, block: bytes, end_stream: bool, max_frame: int) -> bytes:
    """Return a header block as HEADERS and as many CONTINUATION frames as it needs."""
    flags = codes.END_STREAM if end_stream else 0
    if len(block) <= max_frame:
        return frame(codes.HEADERS, flags | codes.END_HEADERS, stream_id, block)
    pieces = [block[at : at + max_frame] for at in range(0, len(block), max_frame)]
    frames = [frame(codes.HEADERS, flags, stream_id, pieces[0])]
    frames += [frame(codes.CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]]
    frames.append(frame(codes.CONTINUATION, codes.END_HEADERS, stream_id, pieces[-1]))
    return b"".join(frames)
