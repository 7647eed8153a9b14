"""The events of a stream, in pieces: packed, and read again from any event."""

import zlib
from collections.abc import Iterable

_LEVEL = 1
_SEPARATOR = b"\n\n"
_ENDS = tuple(b"event: response.%b\n" % kind for kind in (b"completed", b"incomplete", b"failed"))


def split(data: bytes) -> list[bytes]:
    """Return the server-sent events of a text, each with its end."""
    return [event + _SEPARATOR for event in data.split(_SEPARATOR)[:-1]]


def pack(data: bytes) -> bytes:
    """Return events, compressed: they repeat each other."""
    return zlib.compress(data, _LEVEL)


def unpack(packed: bytes) -> bytes:
    """Return what `pack` was given."""
    return zlib.decompress(packed)


def events_from(pieces: Iterable[tuple[int, bytes]], number: int) -> list[bytes]:
    """Return events from a sequence number on.

    Args:
        pieces: in order, without gaps: the number of the last event of each, and its events,
            packed.
        number: of the first event that is wanted.
    """
    found: list[bytes] = []
    for last, packed in pieces:
        if last >= number:
            events = split(unpack(packed))
            first = last - len(events) + 1
            found += events[max(0, number - first) :]
    return found


def is_end(event: bytes) -> bool:
    """Return whether an event is the last one of a response."""
    return event.startswith(_ENDS)
