"""How compressed messages are read; none is sent."""

import zlib

from baton.errors import BatonError, Reason

IDENTITY = b"identity"
GZIP = b"gzip"
DEFLATE = b"deflate"
ACCEPTED = b"identity,deflate,gzip"
"""Encodings that every side of Baton reads."""
_WINDOW_BITS = {GZIP: 31, DEFLATE: 15}


def is_known(encoding: bytes) -> bool:
    """Return whether messages of an encoding can be read."""
    return encoding == IDENTITY or encoding in _WINDOW_BITS


def decompress(encoding: bytes, data: bytes | bytearray, max_bytes: int) -> bytes:
    """Return data decompressed.

    Raises:
        BatonError: MALFORMED_BODY, or BODY_TOO_LARGE if the result would exceed `max_bytes`.
    """
    if encoding not in _WINDOW_BITS:
        raise BatonError(Reason.MALFORMED_BODY, "a compressed message without grpc-encoding")
    decompressor = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        plain = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise BatonError(Reason.MALFORMED_BODY, f"a message cannot be read: {error}") from error
    if len(plain) > max_bytes:
        raise too_large(max_bytes)
    if not decompressor.eof:
        raise BatonError(Reason.MALFORMED_BODY, "a compressed message ends early")
    return plain


def too_large(max_bytes: int) -> BatonError:
    """Return the error for a message that exceeds the limit."""
    return BatonError(Reason.BODY_TOO_LARGE, f"a message of more than {max_bytes} bytes")
