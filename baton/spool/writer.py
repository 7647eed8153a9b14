"""Appends lines to a run's segments."""

from collections.abc import Sequence

import msgspec

from baton.host.append_file import AppendFile
from baton.spool.frames import BEGIN, END, frame
from baton.spool.kind import SpoolRecord
from baton.spool.run import Position, Run

_encode = msgspec.json.Encoder().encode

Entry = tuple[bytes, SpoolRecord]
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
        self._file: AppendFile | None = None
        self._carried = 0
        """Bytes of the begins at the start of the segment."""

    @property
    def position(self) -> Position:
        """End of the complete lines written."""
        return Position(self._segment, 0 if self._file is None else self._file.size)

    def write(self, entries: Sequence[Entry]) -> int:
        """Append lines; return the bytes by which the run grew.

        If a request begins and ends among them, only the line of its end is written. When this
        returns they survive the end of the process and, with `sync`, that of the machine.

        Raises:
            OSError: not all were written. Partial writes are truncated; if that fails, the next
                lines go to a new segment, and the written ones are duplicated once they are written
                again.
        """
        file = self._file
        if file is None or file.closed or file.size - self._carried >= self._segment_bytes:
            file = self._next()
        ended = {record.id for kind, record in entries if kind == END}
        # The end's line has everything that the begin's would contain.
        lines = [
            (kind, record.id, frame(kind, _encode(record)))
            for kind, record in entries
            if kind == END or record.id not in ended
        ]
        carried = b"" if file.size else b"".join(self._running.values())
        data = b"".join([carried, *(line for _, _, line in lines)])
        file.append(data)
        self._carried = self._carried or len(carried)
        for kind, ident, line in lines:
            if kind == BEGIN:
                self._running[ident] = line
            else:
                self._running.pop(ident, None)
        return len(data)

    def rotate(self) -> None:
        """Start another segment, unless the current one is empty.

        Raises:
            OSError: it cannot be created.
        """
        if self._file is not None and self._file.size:
            self._next()

    def close(self) -> None:
        """Close the segment; the next write starts a new one."""
        if self._file is not None:
            self._file.close()

    def _next(self) -> AppendFile:
        self.close()
        self._segment += 1
        self._carried = 0
        self._file = None
        self._file = AppendFile(self._run.path(self._segment), 0o600, sync=self._sync)
        return self._file
