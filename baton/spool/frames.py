"""The lines of a spool's segments: what kind, how long, a checksum, and a record as JSON.

    E 000001c4 9a0b3f77 {"id":"…","outcome":"ok",…}

`B` records that a request began: its record applies if no end follows, with the outcome `lost`. `E`
records how it ended. An incomplete line is skipped up to the next one.
"""

from typing import NamedTuple
from zlib import crc32

BEGIN = b"B"
END = b"E"
MAX_BODY = 64 * 1024
"""Bytes of a usage record. A line with a larger length is damaged."""
HEAD = len(b"E 00000000 00000000 ")
_SEEDS = {kind: crc32(kind) for kind in (BEGIN, END)}
"""Checksums cover the kind and the body."""


Line = tuple[bytes, bytes, int]
"""A complete line: its kind, its body, and where the next one begins in the scanned bytes."""


class Scan(NamedTuple):
    """The content of some bytes of a segment."""

    lines: list[Line]
    end: int
    """End of the scanned bytes: an incomplete line begins there."""
    damaged: int
    """Bytes before it that belong to no complete line."""


def frame(kind: bytes, body: bytes) -> bytes:
    """Return the line of a record; `body` is JSON without a line break."""
    return b"%b %08x %08x %b\n" % (kind, len(body), crc32(body, _SEEDS[kind]), body)


def scan(data: bytes, *, final: bool, max_body: int = MAX_BODY) -> Scan:
    """Return the complete lines in some bytes of a segment, which begin at the start of a line.

    Args:
        data: the bytes.
        final: nothing follows them: an unfinished line is damaged instead of continued.
        max_body: most bytes of a record.
    """
    lines: list[Line] = []
    at = damaged = 0
    *pieces, rest = data.split(b"\n")
    for piece in pieces:
        kind, body, end = piece[:1], piece[HEAD:], at + len(piece) + 1
        seed = _SEEDS.get(kind)
        if (
            seed is not None
            and len(body) <= max_body
            and piece[:HEAD] == b"%b %08x %08x " % (kind, len(body), crc32(body, seed))
        ):
            lines.append((kind, body, end))
        else:
            damaged += end - at
        at = end
    if rest and (final or len(rest) > HEAD + max_body + 1):
        damaged += len(rest)
        at += len(rest)
    return Scan(lines, at, damaged)
