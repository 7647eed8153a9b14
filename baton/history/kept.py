"""A kept request, and its line in a segment: a checksum and JSON.

9a0b3f77 {"kind":"slow","record":{…,"request_id":"req-1",…},"explanations":["…"]}
"""

from enum import StrEnum
from zlib import crc32

import msgspec

from baton.usage.record import UsageRecord

_HEAD = len(b"00000000 ")


class KeptKind(StrEnum):
    """Why a request is kept. Each kind has its own space: a storm of one leaves the others."""

    FAILED = "failed"
    SLOW = "slow"
    SAMPLED = "sampled"


class KeptRequest(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """One ended request."""

    kind: KeptKind
    record: UsageRecord
    error: str = ""
    """Message of the error that ended it."""
    explanations: tuple[bytes, ...] = ()
    """Its decisions that its router still knew, as serialized `Explanation`s; latest first."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KeptRequest).decode


def line_of(kept: KeptRequest) -> bytes:
    """Return the line of a kept request, with its line break."""
    body = _encode(kept)
    return b"%08x %b\n" % (crc32(body), body)


def needle_of(request_id: str) -> bytes:
    """Return bytes that the line of a request contains, and hardly any other line."""
    return b'"request_id":' + _encode(request_id)


def kept_of(line: bytes) -> KeptRequest | None:
    """Return the request of a line without its line break; None: the line is damaged."""
    body = line[_HEAD:]
    if line[:_HEAD] != b"%08x " % crc32(body):
        return None
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return None
