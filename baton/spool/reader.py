"""Reads the records of a run for one sink."""

import os
from math import inf
from typing import NamedTuple

import msgspec

from baton.spool.frames import BEGIN, MAX_BODY, scan
from baton.spool.run import Position, Run

CHUNK_BYTES = 256 * 1024
"""Bytes to read at a time, and about the most in a batch; more for a longer line."""


class SpoolBatch(NamedTuple):
    """Consecutive records."""

    records: list[bytes]
    """Records of ended requests, as JSON."""
    end: Position
    """Position after the last of them, to be acknowledged."""
    damaged: int
    """Bytes among them that belong to no complete line."""


class _RecordId(msgspec.Struct):
    id: str


class RunReader:
    """Reads a run's records that a sink has not acknowledged; blocks, on one thread.

    Args:
        run: the run to read.
        sink: name of the sink.
        left: its process has ended: requests that began in it without an end are lost.
        max_record: most bytes of a record.
    """

    def __init__(self, run: Run, sink: str, *, left: bool, max_record: int = MAX_BODY) -> None:
        self._run = run
        self._skip_to = run.acknowledged(sink)
        self._left = left
        self._max_record = max_record
        self._chunk = CHUNK_BYTES
        self._at = Position(0, 0)
        self._running: dict[str, bytes] = {}
        self._id = msgspec.json.Decoder(_RecordId)

    def read(self, upto: Position) -> SpoolBatch:
        """Return the next records before `upto`, if any.

        Acknowledged records are skipped. In an abandoned run, all lines are scanned for the ends of
        requests.

        Raises:
            OSError: a segment cannot be read.
        """
        damaged = 0
        while self._at < upto:
            segment, offset = self._at
            size = upto.offset if segment == upto.segment else self._run.size(segment)
            data = self._bytes(segment, offset, size) if offset < size else b""
            if not data:
                self._at = self._after(segment, upto)
                continue
            final = offset + len(data) >= size
            found = scan(data, final=final, max_body=self._max_record)
            if not (final or found.end):
                self._chunk *= 2  # the line is longer
                continue
            self._chunk = CHUNK_BYTES
            self._at = Position(segment, offset + found.end)
            damaged += found.damaged
            skip_to = self._skip_within(segment, offset)
            records = []
            for kind, body, end in found.lines:
                if kind == BEGIN:
                    if self._left:
                        self._running[self._id.decode(body).id] = body
                    continue
                if self._left:
                    self._running.pop(self._id.decode(body).id, None)
                if end > skip_to:
                    records.append(body)
            if records:
                return SpoolBatch(records, self._at, damaged)
        return SpoolBatch([], self._at, damaged)

    def lost(self) -> list[bytes]:
        """Return the records of requests that were read with a begin and no end."""
        return list(self._running.values())

    def _skip_within(self, segment: int, offset: int) -> float:
        """Return the position that the sink has acknowledged, relative to `offset` of a segment."""
        known = self._skip_to
        if segment != known.segment:
            return inf if segment < known.segment else 0
        return known.offset - offset

    def _bytes(self, segment: int, offset: int, size: int) -> bytes:
        try:
            fd = os.open(self._run.path(segment), os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, min(self._chunk, size - offset), offset)
        finally:
            os.close(fd)

    def _after(self, segment: int, upto: Position) -> Position:
        if segment >= upto.segment:
            return upto
        later = [number for number in self._run.segments() if number > segment]
        return Position(min(later, default=upto.segment), 0)
