"""The files of a history: appended, found by request id, and deleted oldest first.

    <path>/slow-0001795809633184-5b2e9f10.log     one kind, when it was begun, and by whom

Every process writes files of its own, so that several may share a directory, and reads and deletes
all of them. A crash leaves half a line at the end of a file, which is skipped.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from baton.history.kept import KeptKind, KeptRequest, kept_of, needle_of
from baton.host.append_file import AppendFile

SEGMENTS = 8
"""Segments that a kind's share of the space, and the age, are divided into."""
_MAX_SEGMENT_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(failed|slow|sampled)-([0-9]{16})-[0-9a-f]{8}\.log")


class FoundRequests(NamedTuple):
    """What a search found."""

    kept: list[KeptRequest]
    """The latest first."""
    damaged: int
    """Damaged lines among those that name the request."""


class _Segment(NamedTuple):
    path: Path
    kind: str
    began_ms: int


class SegmentFiles:
    """The files of a history, on a disk. Its methods block: one thread at a time calls them.

    Args:
        path: their directory.
        max_bytes: most bytes of all files; each kind has a third.
        max_seconds: age after which requests are deleted; an eighth more at most.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self, path: Path, max_bytes: int, max_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._path = path
        self._kind_bytes = max_bytes // len(KeptKind)
        self._segment_bytes = min(_MAX_SEGMENT_BYTES, self._kind_bytes // SEGMENTS)
        self._max_ms = int(max_seconds * 1e3)
        self._clock = clock
        self._open: dict[str, tuple[AppendFile, int]] = {}
        """The file that is written, by kind, and when it was begun."""

    def open(self) -> int:
        """Create the directory, delete what is too old, and return the bytes of all files.

        Raises:
            OSError: the directory cannot be written to.
        """
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = self._path / f"probe-{secrets.token_hex(4)}"
        probe.touch(mode=0o600, exist_ok=False)
        probe.unlink()
        return self._prune()

    def append(self, kind: str, lines: Sequence[bytes]) -> int:
        """Append lines of one kind, delete the oldest beyond the limits, return the bytes of all.

        Raises:
            OSError: the disk did not accept all of them.
        """
        for line in lines:
            self._file(kind, len(line)).append(line)
        return self._prune()

    def find(self, request_id: str) -> FoundRequests:
        """Return the kept requests with an id, which clients choose and may repeat.

        Raises:
            OSError: a file cannot be read.
        """
        needle, found, damaged = needle_of(request_id), list[KeptRequest](), 0
        for segment in self._segments():
            try:
                data = segment.path.read_bytes()
            except FileNotFoundError:
                continue  # deleted since by another process
            for line in lines_with(data, needle):
                kept = kept_of(line)
                if kept is None:
                    damaged += 1
                elif kept.record.request_id == request_id:
                    found.append(kept)
        found.sort(key=lambda kept: kept.record.began_ms, reverse=True)
        return FoundRequests(found, damaged)

    def close(self) -> None:
        """Close the files that are written."""
        for file, _ in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, kind: str, more: int) -> AppendFile:
        """Return the file to write to: a new one if the last is long, old, or broken."""
        now = self._now()
        known = self._open.get(kind)
        if known is not None:
            file, began = known
            fits = not file.size or file.size + more <= self._segment_bytes
            if fits and not file.closed and 0 <= now - began <= self._max_ms // SEGMENTS:
                return file
            file.close()
        path = self._path / f"{kind}-{now:016d}-{secrets.token_hex(4)}.log"
        made = AppendFile(path, 0o600, sync=False)
        self._open[kind] = made, now
        return made

    def _prune(self) -> int:
        """Delete the oldest segments beyond the limits; return the bytes of the others."""
        left, total = self._now() - self._max_ms * (SEGMENTS + 1) // SEGMENTS, 0
        used: dict[str, int] = {}
        for segment in self._segments():  # newest first
            try:
                size = segment.path.stat().st_size
                before = used.get(segment.kind, 0)
                if segment.began_ms < left or (before and before + size > self._kind_bytes):
                    segment.path.unlink()
                    used[segment.kind] = self._kind_bytes  # older ones go, too
                    continue
            except FileNotFoundError:
                continue
            used[segment.kind], total = before + size, total + size
        return total

    def _segments(self) -> list[_Segment]:
        """Return all segments, the newest first."""
        found = []
        with suppress(FileNotFoundError):
            for path in self._path.iterdir():
                match = _NAME.fullmatch(path.name)
                if match is not None:
                    found.append(_Segment(path, match[1], int(match[2])))
        return sorted(found, key=lambda segment: segment.path.name[-29:], reverse=True)

    def _now(self) -> int:
        return int(self._clock() * 1e3)


def lines_with(data: bytes, needle: bytes) -> Iterator[bytes]:
    """Yield the lines that contain some bytes, the last one even if it is incomplete."""
    at = data.find(needle)
    while at >= 0:
        begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield data[begin:end]
        at = data.find(needle, end)
