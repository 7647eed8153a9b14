"""The directory of an unfinished download, which becomes the model's by being renamed.

`NAME.partial` has the files at their paths, and a journal with the list that they are of. Nothing
loads a directory with a journal. Once every file is there and checked, the completion record takes
the journal's place, all is flushed to the disk, and the directory gets its name.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep

import msgspec

from baton.engine.checkpoint.record import (
    JOURNAL,
    PARTIAL_SUFFIX,
    RECORD,
    ModelRecord,
    encode_record,
    read_record,
)
from baton.engine.support.documents import CheckpointError
from baton.host.file_locks import try_lock, unlock
from baton.host.flush import flush_to_disk
from baton.models.errors import PullError
from baton.models.limits import MIB, PullLimits
from baton.models.sources.source import ModelListing, RemoteFile

REMOVED = ".removed-"
"""In the name of a directory that is being removed."""
_LOCK_PAUSE_SECONDS = 0.2


class _Journal(msgspec.Struct):
    """The list that an unfinished download is of: size and digest of each file, by its path."""

    source: str
    revision: str
    files: dict[str, tuple[int, str]]


class PartialDirectory:
    """The files of an unfinished download. Its owner holds the lock of the model's directory.

    Args:
        target: the model's directory.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(target.name + PARTIAL_SUFFIX)

    def begin(self, listing: ModelListing) -> None:
        """Create it, or keep what it has of these files.

        Raises:
            PullError: it cannot be written.
        """
        try:
            if self._path.is_symlink() or (self._path.exists() and not self._path.is_dir()):
                raise PullError(f"{self._path} is no directory: remove it.")
            known = self._known()
            wanted = {file.path: (file.size, str(file.digest)) for file in listing.files}
            self._path.mkdir(parents=True, exist_ok=True)
            self._remove_others({path for path, one in wanted.items() if (path, *one) in known})
            journal = _Journal(listing.source, listing.revision, wanted)
            _write_file(self._path / JOURNAL, msgspec.json.encode(journal))
            for file in listing.files:
                self.path(file).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(self._path, error) from error

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self._path

    def path(self, file: RemoteFile) -> Path:
        """Return where a file is."""
        return self._path / file.path

    def check_space(self, files: Iterable[RemoteFile], limits: PullLimits) -> None:
        """Check that the disk has room for what is missing.

        Raises:
            PullError: it has not.
        """
        missing = sum(max(0, file.size - _size(self.path(file))) for file in files)
        found = os.statvfs(self._path)
        free = found.f_bavail * found.f_frsize
        if missing and missing + limits.spare_bytes > free:
            raise PullError(
                f"The disk of {self._path.parent} has {free // MIB} MiB free, and the download "
                f"takes {missing // MIB + 1} MiB more, and leaves {limits.spare_bytes // MIB} MiB: "
                "free some, or choose another directory."
            )

    def finish(self, record: ModelRecord) -> None:
        """Make it the model's directory.

        Raises:
            PullError: it cannot be written or renamed.
        """
        try:
            for file in record.files:
                path = self._path / file.path
                if path.stat().st_mtime_ns != file.mtime * 10**9:
                    os.utime(path, (file.mtime, file.mtime))
            _write_file(self._path / RECORD, encode_record(record))
            folders = {self._path} | {(self._path / file.path).parent for file in record.files}
            for folder in folders:
                flush_to_disk(folder)
            (self._path / JOURNAL).unlink()
            flush_to_disk(self._path)
            self._path.rename(self._target)  # also onto an empty directory
            flush_to_disk(self._target.parent)
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def _known(self) -> set[tuple[str, int, str]]:
        """Return which files it is of: path, size and digest."""
        try:
            data = (self._path / JOURNAL).read_bytes()
            files = msgspec.json.decode(data, type=_Journal).files
            return {(path, size, digest) for path, (size, digest) in files.items()}
        except FileNotFoundError:
            pass
        except msgspec.DecodeError:
            return set()
        # Ended between the journal's removal and the renaming, or before there was a journal.
        try:
            record = read_record(self._path)
        except CheckpointError:
            return set()
        return {
            (file.path, file.size, digest)
            for file in (record.files if record is not None else ())
            for digest in (f"sha256:{file.sha256}", file.origin)
        }

    def _remove_others(self, kept: set[str]) -> None:
        """Remove everything but some files and the journal."""
        kept = kept | {JOURNAL}
        for above, folders, names in os.walk(self._path):
            for name in names:
                path = Path(above, name)
                whole = path.is_symlink() or not path.is_file()
                if whole or path.relative_to(self._path).as_posix() not in kept:
                    path.unlink()
            for name in folders:
                if (path := Path(above, name)).is_symlink():
                    path.unlink()


@contextmanager
def locked(target: Path, limits: PullLimits) -> Iterator[None]:
    """Hold the lock of a model's directory; wait for another process that has it.

    Raises:
        PullError: it still has it after `lock_seconds`, or the file system has no locks.
    """
    path = lock_path(target)
    began = monotonic()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        while (file := try_lock(path)) is None:
            if monotonic() - began >= limits.lock_seconds:
                raise PullError(
                    f"Another process has been downloading {target} for {limits.lock_seconds:g} s: "
                    "wait for it, or end it."
                )
            sleep(_LOCK_PAUSE_SECONDS)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield
    finally:
        unlock(path, file)


def lock_path(target: Path) -> Path:
    """Return the file whose lock a process holds while it writes a model's directory."""
    return target.with_name(f".{target.name}.lock")


def remove_directory(path: Path) -> None:
    """Remove a model's directory: first its name, then its files."""
    gone = path.with_name(f".{path.name}{REMOVED}{token_hex(4)}")
    path.rename(gone)
    shutil.rmtree(gone)


def _write_file(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there."""
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _unwritable(path: Path, error: OSError) -> PullError:
    return PullError(f"{path} cannot be written: {error.strerror}.")
