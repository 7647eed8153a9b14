"""Appends lines to a run's segments."""

import os
from collections.abc import Sequence

from baton.usage.record import UsageRecord, encode
from baton.usage.spool.frames import BEGIN, END, frame
from baton.usage.spool.run import Position, Run

Entry = tuple[bytes, UsageRecord]
"""Kind of line, and its record."""


class SegmentWriter:
    """Writes the segments of one run; blocks, on one thread.

    Each new segment starts with the begins of all running requests: earlier segments can be removed
    once sinks have acknowledged them.

    Args:
        run: the run of the segments.
        segment_bytes: growth of a segment after which a new one is started.
        sync: sync each batch to the disk.
    """

    def __init__(self, run: Run, segment_bytes: int, *, sync: bool) -> None:
        self._run = run
        self._segment_bytes = segment_bytes
        self._sync = sync
        self._running: dict[str, bytes] = {}
        """Begin lines whose end has not been written, by record ID."""
        self._segment = 0
        self._fd = -1
        self._size = self._carried = 0

    @property
    def position(self) -> Position:
        """End of the complete lines written."""
        return Position(self._segment, self._size)

    def write(self, entries: Sequence[Entry]) -> int:
        """Append lines; return the bytes by which the run grew.

        If a request begins and ends among them, only the line of its end is written. When this
        returns they survive the end of the process and, with `sync`, that of the machine.

        Raises:
            OSError: not all were written. Partial writes are truncated; if that fails, the next
                lines go to a new segment, and the written ones are duplicated once they are written
                again.
        """
        try:
            grown = 0
            if self._fd < 0 or self._size - self._carried >= self._segment_bytes:
                grown = self._next()
            ended = {record.id for kind, record in entries if kind == END}
            # The end's line has everything that the begin's would contain.
            lines = [
                (kind, record.id, frame(kind, encode(record)))
                for kind, record in entries
                if kind == END or record.id not in ended
            ]
            grown += self._append(b"".join([line for _, _, line in lines]))
        except OSError:
            self._cut()
            raise
        for kind, ident, line in lines:
            if kind == BEGIN:
                self._running[ident] = line
            else:
                self._running.pop(ident, None)
        return grown

    def close(self) -> None:
        """Close the segment; the next write starts a new one."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _next(self) -> int:
        self.close()
        self._segment += 1
        self._size = self._carried = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._fd = os.open(self._run.path(self._segment), flags, 0o600)
        self._carried = self._append(b"".join(self._running.values()))
        return self._carried

    def _cut(self) -> None:
        """Remove an incomplete line after the complete ones."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, self._size)
            os.fdatasync(self._fd)
        except OSError:
            self.close()

    def _append(self, data: bytes) -> int:
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]
        if self._sync:
            os.fdatasync(self._fd)
        self._size += len(data)
        return len(data)
