"""Sizes of pictures by their headers."""

import base64
import struct

import pytest

from baton.engine.testing.random_vision import random_png
from services.frontend.pictures.dimensions import dimensions

SOI, APP0 = b"\xff\xd8", b"\xff\xe0\0\x07JFIF\0"
TABLES = b"\xff\xc4\0\x03\0"


def jpeg(marker: int, width: int = 5, height: int = 3, *, before: bytes = b"") -> bytes:
    """Return the beginning of a JPEG with a frame header."""
    frame = struct.pack(">HBHHB", 8, 8, height, width, 1)
    return SOI + APP0 + before + bytes([0xFF, marker]) + frame + b"\xff\xda"


PICTURES = {
    "png": random_png(0, 5, 3),
    "gif": base64.b64decode("R0lGODdhBQADAIEAAP8AAAAAAAAAAAAAACwAAAAABQADAAAICAABCBxIsGBAADs="),
    "webp": base64.b64decode(
        "UklGRjIAAABXRUJQVlA4ICYAAABwAQCdASoFAAMADMDOJaACdAFAAAD+3FHSXS5Df6u/O36ntgAAAA=="
    ),
    "webp lossless": base64.b64decode("UklGRhwAAABXRUJQVlA4TA8AAAAvBIAAAAcQ/Y/+ByKi/wEA"),
    "webp extended": base64.b64decode(
        "UklGRk4AAABXRUJQVlA4WAoAAAAQAAAABAAAAgAAQUxQSA8AAAABB0AgaYu3/RERR0T0PwAAVlA4IBgAAAAw"
        "AQCdASoFAAMADMDOJaQAA3AA/uwdgAA="
    ),
    "jpeg": jpeg(0xC0),
    "jpeg progressive": jpeg(0xC2, before=TABLES + b"\xff\xff"[:1]),
    "jpeg with a restart": jpeg(0xC1, before=b"\xff\xd0"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_width_and_height_are_read(name: str) -> None:
    data = PICTURES[name]
    assert dimensions(data) == (5, 3)
    for end in range(22 if "webp" not in name else 24):
        assert dimensions(data[: min(end, len(data) - 3)]) in (None, (5, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BM\0\0",
        b"<svg/>",
        jpeg(0xC0, 0, 3),
        SOI + b"\xff\xda\0\x02",
        SOI + b"\xff\xe0\0\0",
        SOI + b"\xff" * 9,
        SOI + APP0,
        b"GIF89a\0\0\1\0",
        b"RIFF\0\0\0\0WEBPVP8?" + bytes(20),
        b"\x89PNG\r\n\x1a\n" + bytes(20),
    ],
)
def test_what_is_no_picture_has_no_size(data: bytes) -> None:
    assert dimensions(data) is None
