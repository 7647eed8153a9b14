"""Server-sent events of an upstream, read within bounds."""

MAX_LINE_BYTES = 1024 * 1024
MAX_STREAM_BYTES = 64 * 1024 * 1024
_DATA = b"data:"
_END = b"\n\n"


class StreamTooLongError(Exception):
    """A line, or the whole stream, exceeds its bound."""


class EventReader:
    """Finds the data of events in bytes as they arrive. Pure.

    Each `data` line is an event, as upstreams send them; names, ids, comments and other lines are
    ignored. A line that is not ended is dropped.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        """The beginning of a line."""
        self._bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the lines that a piece ends.

        Raises:
            StreamTooLongError: a bound is exceeded.
        """
        self._bytes += len(piece)
        if self._bytes > MAX_STREAM_BYTES:
            raise StreamTooLongError(f"its stream exceeds {MAX_STREAM_BYTES} bytes")
        if (
            not self._rest
            and piece.startswith(_DATA)
            and piece.find(_END) == len(piece) - 2
            and piece.find(b"\n") == len(piece) - 2
        ):
            return [piece[5:-2].strip()]  # one event, as nearly all are
        if self._rest:
            self._rest += piece
            if b"\n" not in piece:
                self._check()
                return []
            piece = bytes(self._rest)
            self._rest.clear()
        *lines, rest = piece.split(b"\n")
        if rest:
            self._rest += rest
            self._check()
        if any(len(line) > MAX_LINE_BYTES for line in lines):
            raise _line_too_long()
        return [line[5:].strip() for line in lines if line.startswith(_DATA)]

    def _check(self) -> None:
        if len(self._rest) > MAX_LINE_BYTES:
            raise _line_too_long()


def _line_too_long() -> StreamTooLongError:
    return StreamTooLongError(f"a line of its stream exceeds {MAX_LINE_BYTES} bytes")
