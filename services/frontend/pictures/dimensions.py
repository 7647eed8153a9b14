"""Width and height of encoded pictures, read from their headers: nothing is decompressed.

PNG: W3C PNG, 11.2.1. JPEG: ITU-T T.81, B.2.2. GIF: version 89a, 18. WebP: RFC 9649, 2.5 to 2.7.
"""

import struct

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Media types of the formats that are read. Which of them a picture has shows in its bytes."""

_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers of a JPEG without a length."""
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG's frame header."""


def dimensions(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels, at least 1; None: it is not such a picture, or broken."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            found: tuple[int, int] | None = struct.unpack_from(">II", data, 16)
        elif data.startswith((b"GIF87a", b"GIF89a")):
            found = struct.unpack_from("<HH", data, 6)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            found = _webp(data)
        elif data.startswith(b"\xff\xd8"):
            found = _jpeg(data)
        else:
            found = None
    except (struct.error, IndexError):  # it ends within its header
        return None
    return found if found is not None and min(found) > 0 else None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
        return 1 + low_width + (high_width << 16), 1 + low_height + (high_height << 16)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while True:
        while data[at] != 0xFF:
            at += 1
        while data[at] == 0xFF:  # fill bytes
            at += 1
        marker = data[at]
        at += 1
        if marker in _STANDALONE:
            continue
        (length,) = struct.unpack_from(">H", data, at)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return width, height
        if marker in (0xD9, 0xDA) or length < 2:  # the end, or a scan without a frame
            return None
        at += length
