"""Section 4, frames in general, and 5.5, extensions."""

from tests.support.grpc.echo_service import EMPTY, STALL, UNARY
from tests.support.http2.cases.case import ANSWERS, IGNORES, Answers, case, closes, resets
from tests.support.http2.frames import END_HEADERS, Code, Kind, data, frame, ping, settings
from tests.support.http2.headers import block, call, call_fields, headers, message

TOO_LONG = 2**24 - 1
_BLOCK = block(call_fields(EMPTY))
_PART, _REST = _BLOCK[:20], _BLOCK[20:]

FRAMING = (
    case("4.1", "a whole call", call(1, EMPTY), ANSWERS),
    case("4.1", "calls at once", call(1, EMPTY) + call(3, EMPTY), Answers(stream_id=3)),
    case("4.1", "a frame of unknown type", frame(0x16, 0, 0, b"abcd") + call(1, EMPTY), ANSWERS),
    case("4.1", "an unknown type on a stream", call(1, EMPTY) + frame(0xFF, 0xFF, 1), ANSWERS),
    case("4.1", "flags that PING does not have", ping(flags=0x16), IGNORES),
    case(
        "4.1",
        "flags that DATA does not have",
        headers(1, call_fields(EMPTY)) + frame(Kind.DATA, 0xD7 & ~8, 1, message()),
        ANSWERS,
    ),
    case(
        "4.1",
        "the reserved bit of the stream id",
        headers(1, call_fields(EMPTY)) + data(1 | 1 << 31, message(), end=True),
        ANSWERS,
    ),
    case("4.1", "the reserved bit of PING", frame(Kind.PING, 0, 1 << 31, bytes(8)), IGNORES),
    case(
        "4.2",
        "DATA longer than any limit",
        headers(1, call_fields(STALL)) + frame(Kind.DATA, 0, 1, size=TOO_LONG),
        *closes(Code.FRAME_SIZE_ERROR),
        *resets(Code.FRAME_SIZE_ERROR),
    ),
    case(
        "4.2",
        "HEADERS longer than any limit",
        frame(Kind.HEADERS, END_HEADERS, 1, size=TOO_LONG),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case(
        "4.2",
        "an unknown type longer than any limit",
        frame(0x16, 0, 0, size=TOO_LONG),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case(
        "4.2",
        "SETTINGS longer than any limit",
        frame(Kind.SETTINGS, 0, 0, size=TOO_LONG),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case(
        "4.2",
        "DATA of 16,384 bytes",
        headers(1, call_fields(UNARY))
        + data(1, message(b"\x0a\xf5\x7f" + bytes(16373)) + b"", end=True),
        ANSWERS,
    ),
    case(
        "4.3",
        "PRIORITY inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + frame(Kind.PRIORITY, 0, 1, bytes(5)),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "4.3",
        "PING inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + ping(),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "4.3",
        "SETTINGS inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + settings(),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "4.3",
        "HEADERS of another stream inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + frame(Kind.HEADERS, END_HEADERS, 3, _BLOCK),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "4.3",
        "DATA inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + data(1, b"x"),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "5.5",
        "an unknown type inside a header block",
        frame(Kind.HEADERS, 0, 1, _PART) + frame(0x16, 0, 0),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case("5.5", "an unknown setting", settings((0xFF, 1), (0, 7)) + call(1, EMPTY), ANSWERS),
)
