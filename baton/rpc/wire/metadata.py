"""Metadata as header fields, and texts in header fields."""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from baton.errors import BatonError, Reason
from baton.rpc.http2.framing.headers import Headers

Metadata = tuple[tuple[str, str | bytes], ...]
"""Keys are lower-case; values of keys that end in `-bin` are bytes, others are ASCII."""

_RESERVED = frozenset((b"te", b"content-type", b"user-agent", b"content-length", b"host"))
_KEY = re.compile(r"[0-9a-z_.\-]+\Z")
_UNPRINTABLE = re.compile(rb"[^ -$&-~]")


def read_metadata(fields: Headers) -> Metadata:
    """Return a caller's metadata, without the fields of HTTP/2 and gRPC themselves.

    Raises:
        BatonError: MALFORMED_HEAD, a binary value that is not base64.
    """
    metadata: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name in _RESERVED or name[:1] == b":":
            continue
        if name[:5] == b"grpc-" and name != b"grpc-status-details-bin":
            continue
        if name[-4:] == b"-bin":
            # Several values of a key may arrive as one field.
            metadata += [(name.decode(), _read_binary(part)) for part in value.split(b",")]
        else:
            metadata.append((name.decode(), value.decode("latin-1")))
    return tuple(metadata)


def metadata_fields(metadata: Iterable[tuple[str, str | bytes]]) -> Headers:
    """Return metadata as header fields.

    Raises:
        ValueError: a key or a value is not allowed in metadata.
    """
    fields: Headers = []
    for key, value in metadata:
        if not _KEY.match(key):
            raise ValueError(f"{key!r} cannot be a key of metadata")
        if key.endswith("-bin"):
            binary = value.encode() if isinstance(value, str) else value
            fields.append((key.encode(), b64encode(binary).rstrip(b"=")))
            continue
        text = value.encode("ascii") if isinstance(value, str) else value
        if _UNPRINTABLE.search(text.replace(b"%", b"")) or text != text.strip():
            raise ValueError(f"the value of {key!r} is not printable ASCII")
        fields.append((key.encode(), text))
    return fields


def encode_message(text: str) -> bytes:
    """Return a status message for `grpc-message`: percent-encoded UTF-8."""
    return _UNPRINTABLE.sub(lambda found: b"%%%02X" % found[0][0], text.encode())


def decode_message(value: bytes) -> str:
    """Return a decoded status message; bytes that are not UTF-8 are replaced."""
    return unquote_to_bytes(value).decode(errors="replace")


def _read_binary(value: bytes) -> bytes:
    try:
        return b64decode(value.strip() + b"=" * (-len(value.strip()) % 4), validate=True)
    except NotBase64 as error:
        raise BatonError(Reason.MALFORMED_HEAD, "binary metadata is not base64") from error
