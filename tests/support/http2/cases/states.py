"""Section 5.1, what a stream's state allows, and 5.1.1, stream identifiers."""

from tests.support.grpc.echo_service import COLLECT, EMPTY, HOLD, STALL
from tests.support.http2.cases.case import ANSWERS, IGNORES, case, closes, resets
from tests.support.http2.frames import (
    END_HEADERS,
    END_STREAM,
    Code,
    Kind,
    data,
    frame,
    priority,
    reset,
    window_update,
)
from tests.support.http2.headers import block, call, call_fields, headers, message

_OPEN = headers(1, call_fields(STALL))
_HALF_CLOSED = call(1, HOLD)
_CLOSED = call(1, HOLD) + reset(1)
_TRAILERS = headers(1, [(b"x-late", b"1")], end=True)
_AFTER_END = (
    # A connection error is what 5.1 wants where END_STREAM closed it; a stream error is allowed
    # where this side still sends.
    *resets(Code.STREAM_CLOSED),
    *closes(Code.STREAM_CLOSED),
)

STATES = (
    case("5.1", "idle: DATA", data(1, b"x"), *closes(Code.PROTOCOL_ERROR)),
    case("5.1", "idle: RST_STREAM", reset(1), *closes(Code.PROTOCOL_ERROR)),
    case("5.1", "idle: WINDOW_UPDATE", window_update(1, 100), *closes(Code.PROTOCOL_ERROR)),
    case(
        "5.1",
        "idle: CONTINUATION",
        frame(Kind.CONTINUATION, END_HEADERS, 1, block(call_fields(EMPTY))),
        *closes(Code.PROTOCOL_ERROR),
    ),
    case("5.1", "idle: PRIORITY", priority(1), IGNORES),
    case(
        "5.1",
        "idle below a stream that is open: DATA",
        _OPEN.replace((1).to_bytes(4), (5).to_bytes(4), 1) + data(3, b"x"),
        *closes(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED),
        *resets(Code.STREAM_CLOSED, stream_id=3),
    ),
    case("5.1", "open: more DATA", _OPEN + data(1, message(b"")) + data(1), IGNORES),
    case("5.1", "open: trailers", headers(1, call_fields(COLLECT)) + _TRAILERS, ANSWERS),
    case("5.1", "half-closed: DATA", _HALF_CLOSED + data(1, b"x"), *_AFTER_END),
    case("5.1", "half-closed: empty DATA", _HALF_CLOSED + data(1), *_AFTER_END),
    case("5.1", "half-closed: HEADERS", _HALF_CLOSED + _TRAILERS, *_AFTER_END),
    case(
        "5.1",
        "half-closed: CONTINUATION",
        _HALF_CLOSED + frame(Kind.CONTINUATION, END_HEADERS, 1, b""),
        *closes(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED),
    ),
    case("5.1", "half-closed: WINDOW_UPDATE", _HALF_CLOSED + window_update(1, 9), IGNORES),
    case("5.1", "half-closed: PRIORITY", _HALF_CLOSED + priority(1), IGNORES),
    case("5.1", "half-closed: RST_STREAM", _CLOSED, IGNORES),
    case("5.1", "closed: DATA", _CLOSED + data(1, b"x"), *_AFTER_END, IGNORES),
    case(
        "5.1",
        "closed: HEADERS",
        _CLOSED + headers(1, call_fields(EMPTY), end=True),
        *_AFTER_END,
        *closes(Code.PROTOCOL_ERROR),
    ),
    case(
        "5.1",
        "closed: CONTINUATION",
        _CLOSED + frame(Kind.CONTINUATION, END_HEADERS, 1, b""),
        *closes(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED),
    ),
    case("5.1", "closed: WINDOW_UPDATE", _CLOSED + window_update(1, 9), IGNORES),
    case("5.1", "closed: RST_STREAM again", _CLOSED + reset(1), IGNORES),
    case("5.1", "closed: PRIORITY", _CLOSED + priority(1), IGNORES),
    case("5.1.1", "a call on an even stream", call(2, EMPTY), *closes(Code.PROTOCOL_ERROR)),
    case(
        "5.1.1",
        "a stream below the latest one",
        call(5, HOLD) + headers(3, call_fields(EMPTY)),
        *closes(Code.PROTOCOL_ERROR, Code.STREAM_CLOSED),
    ),
    case("5.1.1", "identifiers that are passed over", call(9, HOLD) + call(99, HOLD), IGNORES),
    case(
        "5.1.1",
        "the highest identifier",
        frame(Kind.HEADERS, END_HEADERS | END_STREAM, 2**31 - 1, b"\x80"),
        *closes(Code.COMPRESSION_ERROR),
    ),
    case("5.3", "a stream that depends on itself", priority(1, 1) + call(1, EMPTY), ANSWERS),
    case(
        "5.3",
        "HEADERS that depend on themselves",
        frame(
            Kind.HEADERS,
            END_HEADERS | 0x20,
            1,
            (1).to_bytes(4) + b"\x0f" + block(call_fields(EMPTY)),
        )
        + data(1, message(), end=True),
        ANSWERS,
    ),
)
