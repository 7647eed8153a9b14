"""Header compression: RFC 9113, section 4.3, and RFC 7541."""

from tests.support.grpc.echo_service import EMPTY
from tests.support.http2.cases.case import ANSWERS, Answers, Case, case, closes
from tests.support.http2.frames import END_HEADERS, Code, Kind, data, frame
from tests.support.http2.headers import block, call, call_fields, integer, literal, message

_BLOCK = block(call_fields(EMPTY))
_INDEXED = b"".join(literal(*field, indexed=True) for field in call_fields(EMPTY))
_BODY = data(1, message(), end=True)


def _block(name: str, octets: bytes, section: str) -> Case:
    """Return a case of a block that cannot be decoded."""
    sent = frame(Kind.HEADERS, END_HEADERS, 1, octets)
    return case(f"hpack {section}", name, sent, *closes(Code.COMPRESSION_ERROR))


def _decodes(name: str, octets: bytes, section: str) -> Case:
    sent = frame(Kind.HEADERS, END_HEADERS, 1, octets) + _BODY
    return case(f"hpack {section}", name, sent, ANSWERS)


COMPRESSION = (
    _block("index 0", _BLOCK + b"\x80", "6.1"),
    _block("an index that no table has", _BLOCK + integer(200, 7, 0x80), "2.3.3"),
    _block(
        "the name's index that no table has", _BLOCK + integer(200, 6, 0x40) + b"\x01x", "2.3.3"
    ),
    _block("a size update at the end", _BLOCK + integer(1024, 5, 0x20), "4.2"),
    _block("a size update after fields of the table", b"\x83\x86" + integer(9, 5, 0x20), "4.2"),
    _block("an index after fields of the table", b"\x83\x86\xbe", "2.3.3"),
    _block("index 0 after fields of the table", b"\x83\x86\x80", "6.1"),
    _block("a size update over the limit", integer(1 << 26, 5, 0x20) + _BLOCK, "6.3"),
    _block("an integer without an end", _BLOCK + b"\x7f" + b"\xff" * 100, "5.1"),
    _block("an integer over 2^64", _BLOCK + b"\x7f" + b"\xff" * 12 + b"\x01", "5.1"),
    _block("a name that is cut off", _BLOCK + b"\x00\x05ab", "5.2"),
    _block("a value that is cut off", _BLOCK + b"\x00\x01a\x05x", "5.2"),
    _block("a value that is missing", _BLOCK + b"\x00\x01a", "5.2"),
    _block("Huffman padding of 8 bits", _BLOCK + b"\x00\x01a\x81\xff", "5.2"),
    _block("Huffman padding of zeros", _BLOCK + b"\x00\x01a\x81\x18", "5.2"),
    _block("Huffman with EOS in it", _BLOCK + b"\x00\x01a\x84\xff\xff\xff\xff", "5.2"),
    _decodes("size updates at the beginning", b"\x20" + integer(4096, 5, 0x20) + _BLOCK, "4.2"),
    _decodes(
        "a field larger than the table", _BLOCK + literal(b"x-a", b"a" * 5000, indexed=True), "4.4"
    ),
    _decodes("a field that is never indexed", _BLOCK + b"\x10\x03x-a\x01b", "6.2.3"),
    _decodes("a Huffman-coded value", _BLOCK + b"\x00\x03x-a\x81\x1f", "5.2"),
    case(
        "hpack 2.2",
        "a block refers to fields of the one before",
        call(1, EMPTY)
        + frame(Kind.HEADERS, END_HEADERS, 3, _BLOCK + literal(b"x-kept", b"1", indexed=True))
        + data(3, message(), end=True)
        + frame(Kind.HEADERS, END_HEADERS, 5, _BLOCK + b"\xbe")
        + data(5, message(), end=True),
        ANSWERS,
    ),
    case(
        "hpack 6.1",
        "a block of nothing but fields of the table",
        frame(Kind.HEADERS, END_HEADERS, 1, _INDEXED)
        + data(1, message(), end=True)
        + frame(Kind.HEADERS, END_HEADERS, 3, b"\xc3\xc2\xc1\xc0\xbf\xbe")
        + data(3, message(), end=True),
        Answers(stream_id=3),
    ),
    case(
        "4.3",
        "a block that is refused still changes the table",
        frame(Kind.HEADERS, END_HEADERS, 1, literal(b"x-kept", b"1", indexed=True))
        + frame(Kind.HEADERS, END_HEADERS, 3, _BLOCK + b"\xbe")
        + data(3, message(), end=True),
        Answers(stream_id=3),
    ),
)
