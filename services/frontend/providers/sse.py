"""Server-sent events of an upstream, read within bounds."""

from collections.abc import Iterator

MAX_LINE_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 64 * 1024 * 1024
_DATA = b"data:"


class StreamTooLongError(Exception):
    """A line, or the whole stream, exceeds its bound."""


class EventReader:
    """Yields the data of events from bytes as they arrive. Pure.

    Each `data` line is an event, as upstreams send them; names, ids, comments and other lines are
    ignored. A line that is not ended is dropped.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        """The beginning of a line."""
        self._bytes = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the lines that a piece ends.

        Raises:
            StreamTooLongError: a bound is exceeded.
        """
        self._bytes += len(piece)
        if self._bytes > MAX_STREAM_BYTES:
            raise StreamTooLongError(f"its stream exceeds {MAX_STREAM_BYTES} bytes")
        if self._rest:
            self._rest += piece
            if b"\n" not in piece:
                self._check()
                return
            piece = bytes(self._rest)
            self._rest.clear()
        *lines, rest = piece.split(b"\n")
        if rest:
            self._rest += rest
            self._check()
        for line in lines:
            if line.startswith(_DATA):
                if len(line) > MAX_LINE_BYTES:
                    raise _line_too_long()
                yield line[5:].strip()

    def _check(self) -> None:
        if len(self._rest) > MAX_LINE_BYTES:
            raise _line_too_long()


def _line_too_long() -> StreamTooLongError:
    return StreamTooLongError(f"a line of its stream exceeds {MAX_LINE_BYTES} bytes")
