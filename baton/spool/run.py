"""One process's part of the spool: a directory with its segments, and sinks' acknowledgements.

    <spool_path>/0193…-5b2e9f10/lock            held (flock) while the process lives
                               /0000000001      segments, oldest first
                               /jsonl.ack       how far this sink has them

A killed process leaves a run that no process holds. The next process that opens the spool takes it
over, regardless of its own name.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import NamedTuple

import msgspec

_LOCK = "lock"
_SEGMENT = re.compile(r"[0-9]{10}")
_RUN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{8}")


class Position(NamedTuple):
    """A position in the segments of a run."""

    segment: int
    offset: int


START = Position(0, 0)


class Run:
    """The files of one run. Its methods block: one thread at a time calls them.

    Args:
        directory: directory of the run.
        lock: an open file, locked for as long as the run is used.
        sinks: names of the sinks of its records.
    """

    def __init__(self, directory: Path, lock: int, sinks: Sequence[str]) -> None:
        self.directory = directory
        self._lock = lock
        self._acknowledged = {sink: self._read_position(sink) for sink in sinks}
        self._finished: set[str] = set()

    def path(self, segment: int) -> Path:
        """Return the path of a segment."""
        return self.directory / f"{segment:010}"

    def segments(self) -> list[int]:
        """Return the numbers of the existing segments, oldest first."""
        names = (entry.name for entry in self.directory.iterdir())
        return sorted(int(name) for name in names if _SEGMENT.fullmatch(name))

    def size(self, segment: int) -> int:
        """Return the bytes of a segment; 0 if there is none."""
        try:
            return self.path(segment).stat().st_size
        except FileNotFoundError:
            return 0

    def end(self) -> Position:
        """Return the end of the last segment."""
        last = max(self.segments(), default=0)
        return Position(last, self.size(last))

    def acknowledged(self, sink: str) -> Position:
        """Return the position that a sink has acknowledged."""
        return self._acknowledged[sink]

    def acknowledge(self, sink: str, position: Position) -> int:
        """Record a sink's acknowledgement, and remove the segments that all sinks have
        acknowledged.

        Returns the bytes that were freed. The last segment stays. After a crash within this, the
        sink gets the records since the previous call again.
        """
        self._acknowledged[sink] = position
        path = self.directory / f"{sink}.ack"
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(position))
        new.replace(path)
        oldest = min(at.segment for at in self._acknowledged.values())
        freed = 0
        for segment in self.segments():
            if segment < oldest:
                freed += self.size(segment)
                self.path(segment).unlink()
        return freed

    def finish(self, sink: str) -> int:
        """Record that a sink has acknowledged all of it; once all have, remove it. Return the bytes
        freed."""
        self._finished.add(sink)
        if len(self._finished) < len(self._acknowledged):
            return 0
        return self.remove()

    def remove(self) -> int:
        """Remove the run and release its lock; return the bytes freed."""
        freed = 0
        for segment in self.segments():  # oldest first: no end is removed before its begin
            freed += self.size(segment)
            self.path(segment).unlink()
        # The lock last: until then no other process takes the rest.
        for entry in sorted(self.directory.iterdir(), key=lambda entry: entry.name == _LOCK):
            entry.unlink()
        with suppress(FileNotFoundError):  # a process that looks for runs was here first
            self.directory.rmdir()
        self.release()
        return freed

    def release(self) -> None:
        """Release the lock, for the next process that opens the spool."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _read_position(self, sink: str) -> Position:
        try:
            data = (self.directory / f"{sink}.ack").read_bytes()
            return msgspec.json.decode(data, type=Position)
        except (FileNotFoundError, msgspec.DecodeError):
            return START  # all of it comes again


def claim(path: Path, sinks: Sequence[str]) -> tuple[Run, list[Run]]:
    """Return a new run in a spool, and abandoned ones, oldest first, which this process now holds.

    Args:
        path: the spool's directory; created if it is missing.
        sinks: names of the sinks of the records.

    Raises:
        OSError: the directory cannot be created or written to.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone(path):
        left = _take_left(path, sinks)
        own = path / f"{int(time() * 1000):012x}-{secrets.token_hex(4)}"
        own.mkdir(mode=0o700)
        held = os.open(own / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Run(own, held, sinks), left


def claim_left(path: Path, sinks: Sequence[str]) -> list[Run]:
    """Return the abandoned runs in a spool, oldest first, which this process now holds.

    Args:
        path: the spool's directory.
        sinks: names of the sinks of the records.

    Raises:
        OSError: the directory cannot be read.
    """
    with _alone(path):
        return _take_left(path, sinks)


def _take_left(path: Path, sinks: Sequence[str]) -> list[Run]:
    left = []
    for directory in sorted(path.iterdir()):
        if _RUN.fullmatch(directory.name):
            lock = _take_over(directory)
            if lock is not None:
                left.append(Run(directory, lock, sinks))
    return left


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Exclude other processes from claiming runs."""
    fd = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _take_over(directory: Path) -> int | None:
    """Return the open lock of an abandoned run; None: a process holds it, or it is gone."""
    path = directory / _LOCK
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        with suppress(OSError):  # cut off while it was made or removed; not empty: not ours
            directory.rmdir()
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(fd).st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # held by another process, or removed by it since
    os.close(fd)
    return None
