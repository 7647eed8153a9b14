"""One file from a source: continued where it stopped, tried again, checked."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import BinaryIO

from baton.models.digests import FileHash
from baton.models.errors import PullError, TransientError
from baton.models.limits import PullLimits
from baton.models.pull.progress import PullProgress
from baton.models.sources.source import ModelSource, RemoteFile

_PIECE_BYTES = 1024 * 1024


class PullStoppedError(Exception):
    """Another file failed, or the user ended the download."""


class FileTransfer:
    """Brings one file into a directory. Used by one thread.

    What is at the path already is the beginning of the file; the digest of all of it decides.

    Args:
        source: of the file.
        file: which one.
        path: where it goes; the folder exists.
        limits: of the download.
        stop: ends the transfer between two pieces.
        progress: counts bytes.
        clock: seconds, for the rate of slow connections.
    """

    def __init__(
        self,
        source: ModelSource,
        file: RemoteFile,
        path: Path,
        limits: PullLimits,
        stop: Event,
        progress: PullProgress,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._source = source
        self._file = file
        self._path = path
        self._limits = limits
        self._stop = stop
        self._progress = progress
        self._clock = clock
        self._hash = FileHash(file.digest, file.size)
        self._have = 0
        self._received = 0
        """Of `_have`, bytes of this transfer."""

    def run(self) -> str:
        """Bring the file; return its SHA-256 in hexadecimal.

        Raises:
            PullError: the source fails for good, or too often, or its bytes are not those listed.
            PullStoppedError: `stop` was set.
        """
        try:
            with _opened(self._path) as out:
                self._read_present(out)
                self._receive_all(out)
                if not self._hash.matches():
                    # A beginning from elsewhere, or damage on the way, which checksums of TCP miss.
                    self._begin_again(out)
                    self._receive_all(out)
                if not self._hash.matches():
                    found = self._hash.found
                    self._begin_again(out)
                    raise PullError(
                        f"{self._name} does not have the digest that the source gives: it says "
                        f"{self._file.digest}, and the bytes have {found}. They are not kept."
                    )
                os.fsync(out.fileno())
        except OSError as error:
            raise PullError(self._disk_error(error)) from error
        return self._hash.sha256

    @property
    def _name(self) -> str:
        return f"{self._source.name}: {self._file.path}"

    def _read_present(self, out: BinaryIO) -> None:
        """Take what is at the path as the beginning of the file."""
        if os.fstat(out.fileno()).st_size > self._file.size:
            out.truncate(0)
        while piece := out.read(min(_PIECE_BYTES, self._file.size - self._have)):
            self._check_stop()
            self._hash.update(piece)
            self._have += len(piece)
            self._progress.add_present(len(piece))

    def _receive_all(self, out: BinaryIO) -> None:
        """Receive until the file has its size."""
        failures = 0
        while self._have < self._file.size:
            began = self._have
            try:
                self._receive(out)
            except TransientError as error:
                enough = self._have - began >= self._limits.progress_bytes
                failures = 1 if enough else failures + 1
                if failures >= self._limits.attempts:
                    raise PullError(
                        f"{self._name} cannot be downloaded: {error} ({failures} attempts, "
                        f"{self._have} of {self._file.size} bytes are kept). Run the command again "
                        "to continue."
                    ) from error
                if self._stop.wait(self._limits.backoff(failures, error.after_seconds)):
                    raise PullStoppedError from error

    def _receive(self, out: BinaryIO) -> None:
        """Receive once.

        Raises:
            TransientError: the connection failed before the file had its size.
        """
        with self._source.open(self._file, self._have) as body:
            if body.offset != self._have:  # a source that always begins at 0
                self._begin_again(out)
            since, arrived = self._clock(), 0
            for piece in body.pieces:
                self._check_stop()
                if self._have + len(piece) > self._file.size:
                    self._begin_again(out)
                    raise PullError(
                        f"{self._name} is longer than the {self._file.size} bytes that the source "
                        "lists: it is not the file that was listed."
                    )
                _write(out, piece)
                self._hash.update(piece)
                self._have += len(piece)
                self._received += len(piece)
                self._progress.add(len(piece))
                arrived += len(piece)
                now = self._clock()
                if now - since >= self._limits.slow_seconds:
                    if arrived < self._limits.slow_bytes and self._have < self._file.size:
                        raise TransientError(
                            f"only {arrived} bytes came in {self._limits.slow_seconds:g} s"
                        )
                    since, arrived = now, 0
        if self._have < self._file.size:
            raise TransientError(f"only {self._have} of {self._file.size} bytes came")

    def _begin_again(self, out: BinaryIO) -> None:
        """Throw away what is there."""
        out.seek(0)
        out.truncate(0)
        self._progress.add(-self._received)
        self._progress.add_present(self._received - self._have)
        self._hash = FileHash(self._file.digest, self._file.size)
        self._have = self._received = 0

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise PullStoppedError

    def _disk_error(self, error: OSError) -> str:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return (
                f"The disk of {self._path.parent} is full, and {self._file.path} needs "
                f"{self._file.size - self._have} bytes more: free them, and run the command again "
                "to continue."
            )
        return f"{self._path} cannot be written: {error.strerror}."


def _opened(path: Path) -> BinaryIO:
    """Open a file for reading and writing, created if it does not exist.

    Never through a link: neither a symbolic one, nor to a file that another directory has too.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        if path.lstat().st_nlink > 1:
            path.unlink()
    return os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)


def _write(out: BinaryIO, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[out.write(left) :]
