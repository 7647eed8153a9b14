"""Ranges of time in buckets, a page at a time. Pure.

Minutes, hours and days are those of UTC. The first bucket begins and the last one ends with the
range, so that the buckets cover exactly the range.
"""

import base64
import binascii
import struct
from dataclasses import dataclass

from baton.errors import BatonError, invalid_field
from baton.usage.report.question import MAX_SECONDS

_TOKEN = struct.Struct(">qqI")
_PREFIX = "page_"

Bucket = tuple[int, int]
"""First second of a bucket and the one after its last, since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Range:
    """A range of time: its first second, the one after its last, and the width of a bucket."""

    begin: int
    end: int
    width: int

    def buckets(self, most: int) -> list[Bucket]:
        """Return the first buckets, `most` of them at most."""
        found: list[Bucket] = []
        at = self.begin
        while at < self.end and len(found) < most:
            next_one = min((at // self.width + 1) * self.width, self.end)
            found.append((at, next_one))
            at = next_one
        return found


def page_token(begin: int, end: int, question: bytes) -> str:
    """Return a token for the rest of a range.

    Args:
        begin: first second of the rest.
        end: of the range.
        question: identity of the request, which must match when the token is used.
    """
    packed = _TOKEN.pack(begin, end, binascii.crc32(question))
    return _PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_token(token: str, begin: int, width: int, question: bytes) -> Range:
    """Return the rest of a range, from a token of `page_token`.

    Args:
        token: as it was sent.
        begin: of the range.
        width: seconds of a bucket.
        question: as for `page_token`.

    Raises:
        BatonError: INVALID_FIELD: it is not such a token, or was made for another request.
    """
    text = token.removeprefix(_PREFIX)
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        at, end, check = _TOKEN.unpack(packed)
    except (ValueError, struct.error):
        raise _wrong() from None
    if check != binascii.crc32(question) or not begin < at < end <= MAX_SECONDS or at % width:
        raise _wrong()
    return Range(at, end, width)


def _wrong() -> BatonError:
    return invalid_field(
        "page",
        (
            "is not the `next_page` of a response to this request: keep all other parameters "
            "unchanged"
        ),
    )
