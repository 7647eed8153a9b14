"""Header blocks: HPACK (RFC 7541), and the rules for their fields (RFC 9113, section 8).

Decoding uses the `hpack` library. Encoding writes literals that are never added to the dynamic
table, so that a block needs no state and can be prepared once.
"""

import re
from collections.abc import Iterable

from hpack import Decoder, HPACKError
from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure

Headers = list[tuple[bytes, bytes]]

_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+\Z")
_VALUE = re.compile(rb"(?![ \t])[^\x00\r\n]*(?<![ \t])\Z")
_CONNECTION_SPECIFIC = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_REQUEST_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority", b":protocol"))
_RESPONSE_PSEUDO = frozenset((b":status",))
_NO_PSEUDO: frozenset[bytes] = frozenset()
_INDEXED, _INDEXED_LONGER = 0x80, 0xFF
"""Octets between the two are each an index into the tables (RFC 7541, section 6.1)."""
_SIZE_UPDATE_MASK, _SIZE_UPDATE = 0xE0, 0x20
_MAX_SIZE_UPDATES = 2
"""Size updates at the beginning of a block: the smallest since the previous block, and the last
(RFC 7541, section 4.2). The library accepts any number of them, an octet each."""
_FIELD_BYTES = 32
"""Overhead of a field in addition to its bytes (RFC 7541, section 4.1)."""
_MAX_KNOWN = 1024
_known_names: set[bytes] = set()
"""Names already validated; bounded."""


class MalformedHeadersError(Exception):
    """A request or response is malformed: a stream error."""


class HeaderReader:
    """Decodes the header blocks of one direction of a connection, in order."""

    def __init__(self, max_bytes: int) -> None:
        self._decoder = Decoder(max_header_list_size=max_bytes)
        self._max_bytes = max_bytes

    def read(self, block: bytes) -> Headers:
        """Return the fields of a block.

        Raises:
            ConnectionFailure: COMPRESSION_ERROR, or ENHANCE_YOUR_CALM if it is too large.
        """
        try:
            fields = self._read_indexed(block)
            if at := len(fields):  # an octet each
                block = block[at:]
            if block:
                if at and block[0] & _SIZE_UPDATE_MASK == _SIZE_UPDATE:
                    raise HPACKDecodingError("a size update after fields")
                _check_size_updates(block)
                fields += self._decoder.decode(block, raw=True)
            return fields
        except OversizedHeaderListError as error:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many header bytes") from error
        except HPACKError as error:
            # Not the library's text: it has addresses of this process's memory.
            text = "a header block cannot be decoded"
            raise ConnectionFailure(ErrorCode.COMPRESSION_ERROR, text) from error

    def _read_indexed(self, block: bytes) -> Headers:
        """Return the indexed fields at the beginning of a block, an octet each.

        These are in the tables (RFC 7541, section 6.1): most of what a client sends after its first
        request. The library takes five times as long for them.
        """
        find = self._decoder.header_table.get_by_index
        fields: Headers = []
        left = self._max_bytes
        for octet in block:
            if not _INDEXED < octet < _INDEXED_LONGER:
                break
            field = find(octet - _INDEXED)
            left -= len(field[0]) + len(field[1]) + _FIELD_BYTES
            if left < 0:
                raise OversizedHeaderListError("more fields than are read")
            fields.append(field)
        return fields


def _check_size_updates(block: bytes) -> None:
    """Raise HPACKDecodingError if a block begins with more size updates than allowed."""
    at = updates = 0
    while at < len(block) and block[at] & _SIZE_UPDATE_MASK == _SIZE_UPDATE:
        updates += 1
        if updates > _MAX_SIZE_UPDATES:
            raise HPACKDecodingError("too many size updates")
        longer = block[at] & ~_SIZE_UPDATE_MASK == ~_SIZE_UPDATE_MASK & 0xFF
        at += 1
        while longer and at < len(block):  # octets of an integer (RFC 7541, section 5.1)
            longer = block[at] >= 0x80
            at += 1


def encode(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block: plain literals without indexing (RFC 7541, section 6.2.2)."""
    pieces = []
    for name, value in fields:
        if len(name) < 127 and len(value) < 127:
            pieces.append(b"\x00%c%b%c%b" % (len(name), name, len(value), value))
        else:
            pieces.append(b"\x00%b%b%b%b" % (_length(len(name)), name, _length(len(value)), value))
    return b"".join(pieces)


def check_request(fields: Headers) -> None:
    """Check a request's header section.

    Raises:
        MalformedHeadersError: it is malformed.
    """
    pseudo = _check(fields, _REQUEST_PSEUDO)
    if not pseudo.get(b":method"):
        raise MalformedHeadersError("no :method")
    if pseudo[b":method"] == b"CONNECT" and b":protocol" not in pseudo:
        if b":scheme" in pseudo or b":path" in pseudo:
            raise MalformedHeadersError(":scheme or :path beside CONNECT")
    elif not pseudo.get(b":scheme") or not pseudo.get(b":path"):
        raise MalformedHeadersError("no :scheme or no :path")


def check_response(fields: Headers) -> None:
    """Check a response's header section; raises as `check_request` does."""
    status = _check(fields, _RESPONSE_PSEUDO).get(b":status", b"")
    if len(status) != 3 or not status.isdigit():
        raise MalformedHeadersError("no :status of three digits")


def check_trailers(fields: Headers) -> None:
    """Check a trailer section; raises as `check_request` does."""
    _check(fields, _NO_PSEUDO)


def content_length(fields: Headers) -> int:
    """Return the value of content-length, -1 if there is none.

    Raises:
        MalformedHeadersError: it is not a number, or occurs several times.
    """
    values = {value for name, value in fields if name == b"content-length"}
    if not values:
        return -1
    value = values.pop()
    if values or not value.isdigit() or len(value) > 18:
        raise MalformedHeadersError("content-length is not one number")
    return int(value)


def _check(fields: Headers, allowed: frozenset[bytes]) -> dict[bytes, bytes]:
    """Check names and values; return the pseudo-header fields."""
    pseudo: dict[bytes, bytes] = {}
    regular = False
    for name, value in fields:
        if name not in _known_names:
            _check_name(name)
        if not _VALUE.match(value):
            raise MalformedHeadersError("a value has a character that none may have")
        if name[0] == 58:  # a colon
            if regular:
                raise MalformedHeadersError("a pseudo-header field after a regular one")
            if name not in allowed or name in pseudo:
                raise MalformedHeadersError("a pseudo-header field that is unknown, or there twice")
            pseudo[name] = value
            continue
        regular = True
        if name == b"te" and value != b"trailers":
            raise MalformedHeadersError("te is not `trailers`")
    return pseudo


def _check_name(name: bytes) -> None:
    if not _NAME.match(name):
        raise MalformedHeadersError("a field name is empty, not lower-case, or no token")
    if name in _CONNECTION_SPECIFIC:
        raise MalformedHeadersError("a connection-specific field")
    if len(_known_names) < _MAX_KNOWN and len(name) < 64:
        _known_names.add(name)


def _length(number: int) -> bytes:
    """Return a length as an integer with a 7-bit prefix (RFC 7541, section 5.1)."""
    if number < 127:
        return bytes((number,))
    octets, number = [127], number - 127
    while number >= 128:
        octets.append(number & 127 | 128)
        number >>= 7
    octets.append(number)
    return bytes(octets)
