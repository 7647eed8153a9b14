"""Section 6, frame by frame."""

from tests.support.grpc.echo_service import EMPTY, STALL
from tests.support.http2.cases.case import ANSWERS, IGNORES, Answers, case, closes, resets
from tests.support.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    PRIORITY,
    Code,
    Kind,
    Setting,
    data,
    frame,
    goaway,
    ping,
    reset,
    settings,
    window_update,
)
from tests.support.http2.headers import block, call, call_fields, headers, message

_OPEN = headers(1, call_fields(STALL))
_BLOCK = block(call_fields(EMPTY))
_BODY = data(1, message(), end=True)
_LARGEST = 2**31 - 1
_CONTINUED = frame(Kind.HEADERS, 0, 1, _BLOCK[:9])


def _padded(kind: Kind, flags: int, payload: bytes, pad: int) -> bytes:
    return frame(kind, flags | PADDED, 1, bytes((pad,)) + payload + bytes(pad))


DATA = (
    case("6.1", "DATA on stream 0", data(0, b"x"), *closes(Code.PROTOCOL_ERROR)),
    case(
        "6.1",
        "padded DATA",
        headers(1, call_fields(EMPTY)) + _padded(Kind.DATA, END_STREAM, message(), 200),
        ANSWERS,
    ),
    case(
        "6.1",
        "padding that is as long as the payload",
        _OPEN + frame(Kind.DATA, PADDED, 1, b"\x05" + bytes(4)),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.1",
        "padding without its length",
        _OPEN + frame(Kind.DATA, PADDED, 1, b""),
        *closes(Code.PROTOCOL_ERROR, Code.FRAME_SIZE_ERROR),
    ),
)
HEADERS = (
    case(
        "6.2",
        "padded HEADERS with a priority",
        _padded(Kind.HEADERS, END_HEADERS | PRIORITY, bytes(4) + b"\x10" + _BLOCK, 255) + _BODY,
        ANSWERS,
    ),
    case(
        "6.2",
        "HEADERS on stream 0",
        frame(Kind.HEADERS, END_HEADERS, 0, _BLOCK),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.2",
        "padding longer than the payload",
        frame(Kind.HEADERS, END_HEADERS | PADDED, 1, b"\xff" + _BLOCK[:9]),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.2",
        "a priority that is cut short",
        frame(Kind.HEADERS, END_HEADERS | PRIORITY, 1, bytes(3)),
        *closes(Code.FRAME_SIZE_ERROR, Code.PROTOCOL_ERROR),
        *resets(Code.FRAME_SIZE_ERROR),
    ),
)
OTHERS = (
    case("6.3", "PRIORITY on stream 0", frame(2, 0, 0, bytes(5)), *closes(Code.PROTOCOL_ERROR)),
    case(
        "6.3",
        "PRIORITY of 4 bytes",
        _OPEN + frame(Kind.PRIORITY, 0, 1, bytes(4)),
        *resets(Code.FRAME_SIZE_ERROR),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case("6.4", "RST_STREAM on stream 0", reset(0), *closes(Code.PROTOCOL_ERROR)),
    case(
        "6.4",
        "RST_STREAM of 3 bytes",
        _OPEN + frame(Kind.RST_STREAM, 0, 1, bytes(3)),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case("6.4", "RST_STREAM with an unknown code", _OPEN + reset(1, 0xDEAD), IGNORES),
    case(
        "6.6",
        "PUSH_PROMISE by a client",
        _OPEN + frame(Kind.PUSH_PROMISE, END_HEADERS, 1, (2).to_bytes(4) + _BLOCK),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case("6.7", "PING that is an answer", ping(flags=ACK), IGNORES),
    case("6.7", "PING on a stream", frame(Kind.PING, 0, 1, bytes(8)), *closes(Code.PROTOCOL_ERROR)),
    case("6.7", "PING of 6 bytes", ping(b"abcdef"), *closes(Code.FRAME_SIZE_ERROR)),
    case("6.8", "GOAWAY on a stream", frame(7, 0, 1, bytes(8)), *closes(Code.PROTOCOL_ERROR)),
    case("6.8", "GOAWAY of 7 bytes", frame(7, 0, 0, bytes(7)), *closes(Code.FRAME_SIZE_ERROR)),
    case("6.8", "a call before GOAWAY", call(1, EMPTY) + goaway(0, 0, b"bye"), ANSWERS),
)
SETTINGS = (
    case(
        "6.5",
        "SETTINGS that acknowledge with a payload",
        frame(Kind.SETTINGS, ACK, 0, bytes(6)),
        *closes(Code.FRAME_SIZE_ERROR),
    ),
    case("6.5", "SETTINGS on a stream", frame(4, 0, 1, bytes(6)), *closes(Code.PROTOCOL_ERROR)),
    case("6.5", "SETTINGS of 5 bytes", frame(4, 0, 0, bytes(5)), *closes(Code.FRAME_SIZE_ERROR)),
    *(
        case("6.5.2", f"{name.name} of {value}", settings((name, value)), *closes(code))
        for name, value, code in (
            (Setting.ENABLE_PUSH, 2, Code.PROTOCOL_ERROR),
            (Setting.INITIAL_WINDOW_SIZE, 2**31, Code.FLOW_CONTROL_ERROR),
            (Setting.INITIAL_WINDOW_SIZE, 2**32 - 1, Code.FLOW_CONTROL_ERROR),
            (Setting.MAX_FRAME_SIZE, 0, Code.PROTOCOL_ERROR),
            (Setting.MAX_FRAME_SIZE, 16383, Code.PROTOCOL_ERROR),
            (Setting.MAX_FRAME_SIZE, 2**24, Code.PROTOCOL_ERROR),
        )
    ),
    *(
        case("6.5.2", f"{name.name} of {value}", settings((name, value)) + call(1, EMPTY), ANSWERS)
        for name, value in (
            (Setting.HEADER_TABLE_SIZE, 0),
            (Setting.HEADER_TABLE_SIZE, 2**32 - 1),
            (Setting.ENABLE_PUSH, 1),
            (Setting.MAX_CONCURRENT_STREAMS, 0),
            (Setting.INITIAL_WINDOW_SIZE, 2**31 - 1),
            (Setting.MAX_FRAME_SIZE, 16384),
            (Setting.MAX_FRAME_SIZE, 2**24 - 1),
            (Setting.MAX_HEADER_LIST_SIZE, 2**32 - 1),
        )
    ),
    case(
        "6.5.3",
        "the latest of equal settings counts",
        settings((Setting.INITIAL_WINDOW_SIZE, 0), (Setting.INITIAL_WINDOW_SIZE, 9999))
        + call(1, EMPTY),
        ANSWERS,
    ),
)
WINDOW_UPDATE = (
    case("6.9", "an increment of 0", window_update(0, 0), *closes(Code.PROTOCOL_ERROR)),
    case(
        "6.9",
        "an increment of 0 on a stream",
        _OPEN + window_update(1, 0),
        *resets(Code.PROTOCOL_ERROR),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.9", "WINDOW_UPDATE of 3 bytes", frame(8, 0, 0, bytes(3)), *closes(Code.FRAME_SIZE_ERROR)
    ),
    case(
        "6.9.1",
        "more than 2^31-1",
        window_update(0, _LARGEST),
        *closes(Code.FLOW_CONTROL_ERROR),
    ),
    case(
        "6.9.1",
        "more than 2^31-1 on a stream",
        _OPEN + window_update(1, _LARGEST),
        *resets(Code.FLOW_CONTROL_ERROR),
    ),
    case(
        "6.9.2",
        "a setting that takes a stream over 2^31-1",
        _OPEN + window_update(1, _LARGEST - 65535) + settings((Setting.INITIAL_WINDOW_SIZE, 65536)),
        *closes(Code.FLOW_CONTROL_ERROR),
    ),
    case(
        "6.9.2",
        "a setting that changes no window of the connection",
        window_update(0, _LARGEST - 65535) + settings((Setting.INITIAL_WINDOW_SIZE, _LARGEST)),
        IGNORES,
    ),
    case("6.9", "the reserved bit of the increment", window_update(0, 1 << 31 | 5), IGNORES),
)
CONTINUATION = (
    case(
        "6.10",
        "a block in many pieces",
        _CONTINUED
        + b"".join(
            frame(Kind.CONTINUATION, 0, 1, _BLOCK[at : at + 40]) for at in range(9, len(_BLOCK), 40)
        )
        + frame(Kind.CONTINUATION, END_HEADERS, 1)
        + _BODY,
        ANSWERS,
    ),
    case(
        "6.10",
        "CONTINUATION on stream 0",
        _CONTINUED + frame(Kind.CONTINUATION, END_HEADERS, 0, _BLOCK[9:]),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.10",
        "CONTINUATION of another stream",
        _CONTINUED + frame(Kind.CONTINUATION, END_HEADERS, 3, _BLOCK[9:]),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.10",
        "CONTINUATION after END_HEADERS",
        _OPEN + frame(Kind.CONTINUATION, END_HEADERS, 1, b""),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.10",
        "CONTINUATION after DATA",
        _OPEN + data(1, b"\0") + frame(Kind.CONTINUATION, END_HEADERS, 1, b""),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "6.10",
        "END_STREAM of HEADERS counts at the end of its block",
        frame(Kind.HEADERS, END_STREAM, 1, block(call_fields(EMPTY))[:9])
        + frame(Kind.CONTINUATION, END_HEADERS, 1, block(call_fields(EMPTY))[9:]),
        Answers("13"),
        Answers("12"),
        Answers("3"),
    ),
)
FRAME_TYPES = (*DATA, *HEADERS, *OTHERS, *SETTINGS, *WINDOW_UPDATE, *CONTINUATION)
