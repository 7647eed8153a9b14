"""Frames (RFC 9113, section 4.1) as bytes, valid or invalid."""

from dataclasses import dataclass
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Code(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20


@dataclass(frozen=True, slots=True)
class Frame:
    """A received frame."""

    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def error(self) -> Code:
        """The code of a RST_STREAM or GOAWAY."""
        at = 4 if self.kind == Kind.GOAWAY else 0
        return Code(int.from_bytes(self.payload[at : at + 4]))

    @property
    def settings(self) -> dict[int, int]:
        """The values of a SETTINGS frame."""
        pairs = (self.payload[at : at + 6] for at in range(0, len(self.payload), 6))
        return {int.from_bytes(pair[:2]): int.from_bytes(pair[2:]) for pair in pairs}

    def __repr__(self) -> str:
        kind = Kind(self.kind).name if self.kind < len(Kind) else str(self.kind)
        code = f" {self.error.name}" if self.kind in (Kind.RST_STREAM, Kind.GOAWAY) else ""
        text = f" {self.payload[8:]!r}" if self.kind == Kind.GOAWAY else f" {len(self.payload)} B"
        return f"<{kind}{code} stream {self.stream_id} flags {self.flags:#x}{text}>"


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"", size: int = -1) -> bytes:
    """Return a frame; `size` is the length in its header, if it differs from the payload's."""
    length = len(payload) if size < 0 else size
    return length.to_bytes(3) + bytes((kind, flags)) + stream_id.to_bytes(4) + payload


def data(stream_id: int, payload: bytes = b"", *, end: bool = False) -> bytes:
    return frame(Kind.DATA, END_STREAM * end, stream_id, payload)


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(
        Kind.SETTINGS, 0, 0, b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in pairs)
    )


SETTINGS_ACK = frame(Kind.SETTINGS, ACK, 0)


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4))


def reset(stream_id: int, code: int = Code.CANCEL) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream_id, code.to_bytes(4))


def ping(payload: bytes = b"pingpong", flags: int = 0) -> bytes:
    return frame(Kind.PING, flags, 0, payload)


def goaway(last_stream_id: int = 0, code: int = Code.NO_ERROR, debug: bytes = b"") -> bytes:
    return frame(Kind.GOAWAY, 0, 0, last_stream_id.to_bytes(4) + code.to_bytes(4) + debug)


def priority(stream_id: int, dependency: int = 0, weight: int = 15) -> bytes:
    return frame(Kind.PRIORITY, 0, stream_id, dependency.to_bytes(4) + bytes((weight,)))


def take(buffer: bytearray) -> Frame | None:
    """Remove the first complete frame from a buffer and return it; None: there is none yet."""
    if len(buffer) < 9 or len(buffer) < (end := 9 + int.from_bytes(buffer[:3])):
        return None
    stream_id = int.from_bytes(buffer[5:9]) & 0x7FFFFFFF
    taken = Frame(buffer[3], buffer[4], stream_id, bytes(buffer[9:end]))
    del buffer[:end]
    return taken
