"""Where models go: a directory of their own, or a cache that several revisions share.

A cache has a directory per source and revision, `CACHE/SOURCE/REVISION`. Files that two revisions
have alike are one file on the disk (a hard link), and are not downloaded again. Of each source the
newest revisions are kept, and all that a worker has open.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from baton.engine.checkpoint.record import PARTIAL_SUFFIX, RECORD, hold_record, read_record
from baton.engine.support.documents import CheckpointError
from baton.host.file_locks import try_lock, unlock
from baton.models.errors import PullError
from baton.models.pull.partial import REMOVED, lock_path, remove_directory
from baton.models.sources.source import ModelListing, RemoteFile, list_revision

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_LETTERS = 80


@dataclass(frozen=True, slots=True)
class ModelStore:
    """Where a download goes.

    At least one is given. With a cache, the directory is a symbolic link into it.
    """

    directory: Path | None
    cache: Path | None
    keep: int = 2
    """Revisions of a source that a cache keeps."""

    def target(self, listing: ModelListing) -> Path:
        """Return the directory of a revision."""
        if self.cache is not None:
            return self.cache / _source_folder(listing.source) / _revision_folder(listing)
        assert self.directory is not None
        return self.directory

    def newest(self, identity: str, requested: str) -> Path | None:
        """Return the newest revision of a source that is there; None: none is.

        Args:
            identity: of the source.
            requested: only a revision that was asked for by this name.
        """
        if self.cache is not None:
            places = _revisions(self.cache / _source_folder(identity))
        else:
            places = [one for one in (self.directory,) if one is not None]
        for place in places:
            try:
                record = read_record(place)
            except CheckpointError:
                continue
            if record is not None and (record.source, record.requested) == (identity, requested):
                return place
        return None

    def candidates(self, listing: ModelListing) -> dict[str, list[Path]]:
        """Return files of other revisions, by their digests as `kind:value`."""
        found: dict[str, list[Path]] = {}
        if self.cache is None:
            return found
        for directory in _revisions(self.cache / _source_folder(listing.source)):
            try:
                record = read_record(directory)
            except CheckpointError:
                continue  # damaged: it serves nothing, and is left for its users to see
            for file in record.files if record is not None else ():
                path = directory / file.path
                found.setdefault(f"sha256:{file.sha256}", []).append(path)
                if file.origin:
                    found.setdefault(file.origin, []).append(path)
        return found

    def publish(self, target: Path) -> None:
        """Have the directory lead to a revision in the cache.

        Raises:
            PullError: there is something else at its path, or it cannot be written.
        """
        link = self.directory
        if self.cache is None or link is None:
            return
        try:
            ours = link.is_symlink() and link.resolve().is_relative_to(self.cache.resolve())
            if os.path.lexists(link) and not ours:
                raise PullError(
                    f"{link} is there already, and no link into the cache {self.cache}: remove it, "
                    "or choose another directory."
                )
            link.parent.mkdir(parents=True, exist_ok=True)
            # Processes of several pods that share the volume may have the same number.
            new = link.with_name(f".{link.name}.{token_hex(4)}.new")
            # Relative, so that it also leads there where the volume is mounted elsewhere.
            new.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
            new.replace(link)
        except OSError as error:
            raise PullError(f"{link} cannot be written: {error.strerror}.") from error

    def prune(self, listing: ModelListing) -> list[Path]:
        """Remove old revisions of a source, and unfinished downloads of others than this one.

        Returns:
            What was removed. What is in use or cannot be removed stays.
        """
        if self.cache is None:
            return []
        target = self.target(listing)
        for gone in target.parent.glob(f".*{REMOVED}*"):  # its process was killed meanwhile
            shutil.rmtree(gone, ignore_errors=True)
        own = {target, target.with_name(target.name + PARTIAL_SUFFIX)}
        revisions = [one for one in _revisions(target.parent) if one not in own]
        unfinished = [
            one
            for one in target.parent.glob(f"*{PARTIAL_SUFFIX}")
            if one not in own and not one.name.startswith(".")
        ]
        removed = []
        for one in (*revisions[max(0, self.keep - 1) :], *unfinished):
            with _removable(one) as removable:
                if removable:
                    try:
                        remove_directory(one)
                    except OSError:
                        continue  # of another user
                    removed.append(one)
        return removed

    def prune_oldest(self, max_bytes: int) -> list[Path]:
        """Remove revisions of all sources until the cache has so many bytes, those first whose
        directories were changed longest ago.

        Returns:
            What was removed. What is in use or cannot be removed stays.
        """
        assert self.cache is not None
        found = []
        for path in self.cache.glob(f"*/*/{RECORD}"):
            with suppress(OSError, CheckpointError):  # removed meanwhile, or damaged
                record = read_record(path.parent)
                size = sum(file.size for file in record.files) if record is not None else 0
                found.append((path.parent.stat().st_mtime, path.parent, size))
        excess = sum(size for _, _, size in found) - max_bytes
        removed = []
        for _, one, size in sorted(found):
            if excess <= 0:
                break
            with _removable(one) as removable:
                if removable:
                    with suppress(OSError):  # of another user
                        remove_directory(one)
                        removed.append(one)
                        excess -= size
        return removed


def link_candidate(file: RemoteFile, path: Path, candidates: dict[str, list[Path]]) -> bool:
    """Put a file of another revision at a path, as a hard link.

    Returns:
        Whether there is one of this size, on the same file system. Its digest is not compared.
    """
    for other in candidates.get(str(file.digest), ()):
        try:
            if other.stat().st_size == file.size and not other.is_symlink():
                os.link(other, path)
                return True
        except OSError:
            continue  # removed meanwhile, or a file system without links
    return False


@contextmanager
def _removable(directory: Path) -> Iterator[bool]:
    """Yield whether no process uses a revision or downloads it; none begins to meanwhile."""
    path = lock_path(directory.with_name(directory.name.removesuffix(PARTIAL_SUFFIX)))
    try:
        lock = try_lock(path)
    except OSError:
        lock = None
    if lock is None:
        yield False
        return
    try:
        holder = hold_record(directory, alone=True)
        try:
            yield holder is not None or not (directory / RECORD).exists()
        finally:
            if holder is not None:
                os.close(holder)
    finally:
        unlock(path, lock)


def _revisions(folder: Path) -> list[Path]:
    """Return the directories with a completion record, the newest first."""
    found = []
    for one in folder.glob(f"*/{RECORD}"):
        with suppress(OSError):  # removed meanwhile
            found.append((one.stat().st_mtime, one.parent))
    return [
        one
        for _, one in sorted(found, reverse=True)
        if not one.name.startswith(".") and not one.name.endswith(PARTIAL_SUFFIX)
    ]


def _source_folder(source: str) -> str:
    """Return the name of a source's folder: readable, and its own."""
    readable = _UNSAFE.sub("--", source.replace("://", "--")).strip("-.")[:_NAME_LETTERS]
    return f"{readable}-{sha256(source.encode()).hexdigest()[:8]}"


def _revision_folder(listing: ModelListing) -> str:
    """Return the name of a revision's folder: other files of one revision have another."""
    files = list_revision(listing.files)
    if listing.revision == files:
        return files
    return f"{_UNSAFE.sub('-', listing.revision)[:12].strip('-.')}-{files}"
