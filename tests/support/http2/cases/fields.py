"""Section 8, the fields of a request, and gRPC's additions."""

from tests.support.grpc.echo_service import COLLECT, EMPTY
from tests.support.http2.cases.case import ANSWERS, Answers, Case, Outcome, case, resets
from tests.support.http2.frames import Code, data
from tests.support.http2.headers import Fields, call_fields, headers, message

_USUAL = call_fields(EMPTY)
_BODY = data(1, message(), end=True)
_MALFORMED = resets(Code.PROTOCOL_ERROR)


def _without(name: bytes) -> Fields:
    return [field for field in _USUAL if field[0] != name]


def _with(name: bytes, value: bytes) -> Fields:
    return [(key, value if key == name else old) for key, old in _USUAL]


def _fields(section: str, name: str, fields: Fields, *outcomes: Outcome) -> Case:
    return case(section, name, headers(1, fields) + _BODY, *(outcomes or _MALFORMED))


def _one(section: str, name: bytes, value: bytes = b"1", *outcomes: Outcome) -> Case:
    """Return a case of a usual call with one more field."""
    return _fields(section, f"{name!r}: {value!r}", [*_USUAL, (name, value)], *outcomes)


def _trailers(name: str, fields: Fields, *, end: bool = True) -> Case:
    sent = headers(1, call_fields(COLLECT)) + headers(1, fields, end=end)
    return case("8.1", name, sent, *_MALFORMED)


def _length(name: str, value: bytes, *bodies: bytes, ok: bool = False) -> Case:
    sent = headers(1, [*call_fields(COLLECT), (b"content-length", value)]) + b"".join(bodies)
    return case("8.1.1", name, sent, *((ANSWERS,) if ok else _MALFORMED))


FIELDS = (
    _one("8.2.1", b"X-Upper"),
    _one("8.2.1", b"x-Upper"),
    _one("8.2.1", b""),
    _one("8.2.1", b"x y"),
    _one("8.2.1", b"x:y"),
    _one("8.2.1", b"x\x7f"),
    _one("8.2.1", b"x\xe4"),
    _one("8.2.1", b"x-v", b"a\rb"),
    _one("8.2.1", b"x-v", b"a\nb"),
    _one("8.2.1", b"x-v", b"a\x00b"),
    _one("8.2.1", b"x-v", b" a"),
    _one("8.2.1", b"x-v", b"a\t"),
    _one("8.2.1", b"x-v", b"", ANSWERS),
    _one("8.2.1", b"x-v", b"a \t b", ANSWERS),
    _one("8.2.2", b"connection", b"keep-alive"),
    _one("8.2.2", b"keep-alive", b"timeout=5"),
    _one("8.2.2", b"proxy-connection", b"keep-alive"),
    _one("8.2.2", b"transfer-encoding", b"chunked"),
    _one("8.2.2", b"upgrade", b"h2c"),
    _fields("8.2.2", "te: gzip", _with(b"te", b"gzip")),
    _fields("8.2.2", "te: trailers, gzip", _with(b"te", b"trailers, gzip")),
    _fields(
        "8.2.3", "cookies in pieces", [*_USUAL, (b"cookie", b"a=b"), (b"cookie", b"c=d")], ANSWERS
    ),
    _one("8.3", b":unknown"),
    _one("8.3", b":status", b"200"),
    _fields("8.3", "a pseudo-header field after a regular one", [(b"x-a", b"1"), *_USUAL]),
    _fields("8.3", "a pseudo-header field at the end", [*_without(b":path"), (b":path", b"/a")]),
    *(
        _fields("8.3.1", f"no {name.decode()}", _without(name))
        for name in (b":method", b":scheme", b":path")
    ),
    *(
        _fields("8.3.1", f"{name.decode()} twice", [(name, value), *_USUAL])
        for name, value in _USUAL[:4]
    ),
    _fields("8.3.1", "an empty :path", _with(b":path", b"")),
    _fields(
        "8.3.1", "a :path without a slash", _with(b":path", b"abc"), *_MALFORMED, Answers("12")
    ),
    _fields("8.3.1", "no :authority", _without(b":authority"), ANSWERS, *_MALFORMED),
    _fields("8.3.1", "https", _with(b":scheme", b"https"), ANSWERS),
    _trailers("trailers with a pseudo-header field", [(b":path", b"/a")]),
    _trailers("trailers with an upper-case name", [(b"X-A", b"1")]),
    _trailers("trailers with a connection-specific field", [(b"upgrade", b"h2c")]),
    _trailers("trailers that do not end the stream", [(b"x-a", b"1")], end=False),
    _length(
        "content-length of all", b"10", data(1, message()), data(1, message(), end=True), ok=True
    ),
    _length("content-length of less", b"9", data(1, message()), data(1, message(), end=True)),
    _length("content-length of more", b"11", data(1, message()), data(1, message(), end=True)),
    _length("content-length exceeded at once", b"4", data(1, message())),
    _length(
        "content-length and trailers",
        b"6",
        data(1, message()),
        headers(1, [(b"x-a", b"1")], end=True),
    ),
    _length("content-length of 0 and DATA", b"0", data(1, message(), end=True)),
    _length("content-length that is no number", b"1e1", data(1, message(), end=True)),
    _length("content-length that is negative", b"-5", data(1, message(), end=True)),
)
