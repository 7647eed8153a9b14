"""Pictures as clients send them: data URLs (RFC 2397), base64-encoded."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from baton.errors import BatonError, Reason, invalid_field
from baton.settings import FrontendLimits
from services.frontend.pictures.dimensions import MEDIA_TYPES, dimensions

_HEAD = re.compile(r"data:([^,;]*)((?:;[^,;]*)*)$", re.IGNORECASE)
_LONGEST_HEAD = 256


@dataclass(frozen=True, slots=True)
class PictureUrl:
    """A picture in a message, as sent."""

    url: str
    field: str
    """The client's name for it, for errors."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture whose header has been read."""

    data: bytes
    """Encoded, as the client sent it."""
    digest: bytes
    """Its SHA-256."""


def check_urls(pictures: Sequence[PictureUrl], limits: FrontendLimits) -> None:
    """Check number, kind and size of a request's pictures, without decoding them.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: not a data URL, or not of a known media type;
            INVALID_FIELD: there are too many, or they are too large.
    """
    if len(pictures) > limits.max_pictures:
        raise invalid_field(
            pictures[limits.max_pictures].field,
            f"{len(pictures)} pictures exceed the limit of {limits.max_pictures}",
        )
    size = 0
    for one in pictures:
        size += (len(one.url) - _begin(one)) * 3 // 4
        if size > limits.max_picture_bytes + 2:  # of padding
            raise _too_many_bytes(one, limits)


def read_pictures(pictures: Sequence[PictureUrl], limits: FrontendLimits) -> list[Picture]:
    """Return the pictures of a request; takes milliseconds per megabyte, on any thread.

    Args:
        pictures: checked ones.
        limits: on their bytes and pixels.

    Raises:
        BatonError: INVALID_FIELD: one is not base64, has no header of its format, or is too large.
    """
    found, size = [], 0
    for one in pictures:
        picture = _read(one, limits.max_picture_pixels)
        size += len(picture.data)
        if size > limits.max_picture_bytes:
            raise _too_many_bytes(one, limits)
        found.append(picture)
    return found


def _begin(picture: PictureUrl) -> int:
    """Return where the base64 text of a picture begins."""
    url = picture.url
    comma = url.find(",", 0, _LONGEST_HEAD)
    head = _HEAD.match(url, 0, comma) if comma >= 0 else None
    if head is None:
        if url[:5].lower() == "data:":
            raise invalid_field(picture.field, "must begin like data:image/png;base64,")
        scheme = url.partition(":")[0][:16] if ":" in url[:17] else ""
        raise _unsupported(
            picture, f"{scheme}: URLs are not supported" if scheme else "is not a data URL"
        )
    media_type = head[1].lower()
    if media_type not in MEDIA_TYPES:
        raise _unsupported(
            picture,
            f"{media_type[:64]!r} is not supported; only {', '.join(MEDIA_TYPES)} are",
            remedy="",
        )
    if not head[2].lower().endswith(";base64"):
        raise invalid_field(picture.field, "must be encoded in base64")
    return comma + 1


def _read(picture: PictureUrl, most_pixels: int) -> Picture:
    try:
        data = base64.b64decode(picture.url[_begin(picture) :], validate=True)
    except (binascii.Error, ValueError):
        raise invalid_field(picture.field, "the data URL is not valid base64") from None
    size = dimensions(data)
    if size is None:
        raise invalid_field(
            picture.field, f"the data is not a picture; supported are {', '.join(MEDIA_TYPES)}"
        )
    width, height = size
    if width * height > most_pixels:
        raise invalid_field(
            picture.field,
            f"{width} × {height} pixels exceed the limit of {most_pixels} pixels; send a smaller "
            "picture",
        )
    return Picture(data, sha256(data).digest())


def _unsupported(
    picture: PictureUrl,
    what: str,
    remedy: str = "; send the picture itself as a data URL (data:image/png;base64,…)",
) -> BatonError:
    return BatonError(
        Reason.UNSUPPORTED_PARAMETER, f"{picture.field}: {what}{remedy}", field=picture.field
    )


def _too_many_bytes(picture: PictureUrl, limits: FrontendLimits) -> BatonError:
    return invalid_field(
        picture.field,
        f"the request's pictures exceed the limit of {limits.max_picture_bytes} bytes; send "
        "smaller ones",
    )
