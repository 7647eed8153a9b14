"""Bytes into lines, with a bound on what is held."""

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Splits pieces of a file at line feeds.

    Args:
        most: bytes that a line may have; of a longer one, only that it is there is known.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = bytearray()
        self._too_long = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield the lines that end in a piece, without their ends; None: it is too long."""
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield self._line(line)
        self._hold(rest)

    def end(self) -> Iterator[bytes | None]:
        """Yield the last line, if its end is missing."""
        if self._held or self._too_long:
            yield self._line(b"")

    def _line(self, last: bytes) -> bytes | None:
        self._hold(last)
        line, too_long = bytes(self._held), self._too_long
        self._held.clear()
        self._too_long = False
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        return None if too_long else line

    def _hold(self, part: bytes) -> None:
        if self._too_long or len(self._held) + len(part) > self._most:
            self._too_long = True
            self._held.clear()
        else:
            self._held += part
