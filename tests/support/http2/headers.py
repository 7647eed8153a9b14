"""Header blocks: gRPC requests, and fields that no encoder would write (RFC 7541)."""

from collections.abc import Iterable

from tests.support.http2.frames import END_HEADERS, END_STREAM, Kind, data, frame

Fields = list[tuple[bytes, bytes]]


def integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Return an integer with a prefix (RFC 7541, section 5.1)."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes((first | value,))
    octets = [first | limit]
    value -= limit
    while value >= 128:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes((*octets, value))


def literal(name: bytes, value: bytes, *, indexed: bool = False) -> bytes:
    """Return a field as a literal with a new name, added to the dynamic table or not."""
    head = b"\x40" if indexed else b"\x00"
    return head + integer(len(name), 7) + name + integer(len(value), 7) + value


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block of literals, which needs no state."""
    return b"".join(literal(name, value) for name, value in fields)


def call_fields(path: str, extra: Iterable[tuple[bytes, bytes]] = ()) -> Fields:
    """Return the header fields of a gRPC call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"127.0.0.1"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        *extra,
    ]


def headers(stream_id: int, fields: Iterable[tuple[bytes, bytes]], *, end: bool = False) -> bytes:
    """Return a HEADERS frame with the whole block."""
    return frame(Kind.HEADERS, END_HEADERS | END_STREAM * end, stream_id, block(fields))


def message(payload: bytes = b"", *, compressed: bool = False) -> bytes:
    """Return gRPC's framing of a message."""
    return bytes((compressed,)) + len(payload).to_bytes(4) + payload


def call(stream_id: int, path: str, payload: bytes = b"") -> bytes:
    """Return a whole call with one message."""
    return headers(stream_id, call_fields(path)) + data(stream_id, message(payload), end=True)
