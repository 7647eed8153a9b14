"""A download from beginning to end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bind
from pathlib import Path
from threading import Event

from baton.engine.checkpoint.files import INDEX, weight_files, weight_map
from baton.engine.checkpoint.integrity import check_directory, check_record
from baton.engine.checkpoint.record import ModelRecord, RecordedFile, read_record
from baton.engine.checkpoint.shards import check_shard, check_shards
from baton.engine.checkpoint.tree import check_tree
from baton.engine.support.documents import CheckpointError
from baton.models.digests import FileHash
from baton.models.errors import PullError, TransientError
from baton.models.limits import PullLimits
from baton.models.pull.parallel import ParallelJobs
from baton.models.pull.partial import PartialDirectory, locked, remove_directory
from baton.models.pull.progress import PullProgress
from baton.models.pull.store import ModelStore, link_candidate
from baton.models.pull.transfer import FileTransfer, PullStoppedError
from baton.models.sources.select import FileSelection, check_listing
from baton.models.sources.source import ModelListing, ModelSource, RemoteFile

_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PullResult:
    """A model that is there."""

    directory: Path
    """Its directory, no link."""
    record: ModelRecord
    was_there: bool
    """Whether nothing had to be done."""
    removed: Sequence[Path]
    """Old revisions that were removed from the cache."""
    source_is_away: bool = False
    """Whether it may not be what the source has now: the source could not be reached."""


class UnreachableError(Exception):
    """A source could not be reached, again and again. The text is a sentence."""


class ModelPull:
    """One download, by one call of `run`.

    Args:
        source: of the model; the caller closes it.
        store: where it goes.
        selection: which files.
        limits: of waiting, trying again, and doing at once.
        progress: counts bytes.
        tick: called a few times a second meanwhile.
    """

    def __init__(
        self,
        source: ModelSource,
        store: ModelStore,
        selection: FileSelection,
        limits: PullLimits,
        progress: PullProgress,
        tick: Callable[[], None],
    ) -> None:
        self._source = source
        self._store = store
        self._selection = selection
        self._limits = limits
        self._progress = progress
        self._tick = tick
        self._stop = Event()

    def run(self) -> PullResult:
        """Download the model, or find that it is there.

        Raises:
            PullError: it cannot be downloaded or stored. What arrived is kept, and the next run
                continues.
        """
        try:
            listing = self._list()
        except UnreachableError as error:
            if (found := self._without_source()) is not None:
                return found
            raise PullError(str(error)) from error
        target = self._store.target(listing)
        with locked(target, self._limits):
            record = self._present(target, listing)
            was_there = record is not None
            if record is None:
                record = self._download(listing, target)
            self._store.publish(target)
            removed = self._store.prune(listing)
        return PullResult(target, record, was_there, removed)

    def _list(self) -> ModelListing:
        failures = 0
        while True:
            try:
                listing = self._source.list_files(self._selection.wants)
                break
            except TransientError as error:
                failures += 1
                if failures >= self._limits.attempts:
                    raise UnreachableError(
                        f"{self._source.name} cannot be listed: {error} ({failures} attempts)."
                    ) from error
                self._stop.wait(self._limits.backoff(failures, error.after_seconds))
        check_listing(listing)
        return listing

    def _without_source(self) -> PullResult | None:
        """Return what was downloaded before, while the source is away; None: nothing.

        So a pod can start again on a node that has its model.
        """
        place = self._store.newest(self._source.identity, self._source.requested)
        if place is None:
            return None
        try:
            check_directory(place)
            record = read_record(place)
            if record is None:
                return None
            check_record(place, record, "changed")
        except CheckpointError:
            return None
        self._store.publish(place)
        return PullResult(place, record, was_there=True, removed=(), source_is_away=True)

    def _present(self, target: Path, listing: ModelListing) -> ModelRecord | None:
        """Return the record of a model that is there; None: there is nothing yet.

        Raises:
            PullError: there is something else, or it is damaged and no part of a cache.
        """
        try:
            if target.is_mount():
                raise PullError(
                    f"{target} is a mount point, which cannot be replaced: choose a directory "
                    "below it."
                )
            if not target.exists() or (target.is_dir() and not any(target.iterdir())):
                return None
            record = _own_record(target)
            if not _covers(record, listing):
                raise PullError(
                    f"{target} has revision {record.revision} of {record.source}, and "
                    f"{listing.source} is at {listing.revision}: choose another directory, or "
                    "remove that one. With --cache, revisions have directories of their own."
                )
            check_record(target, record, "changed")
        except CheckpointError as error:
            if self._store.cache is None:
                raise PullError(f"{error} Remove {target} first.") from error
            remove_directory(target)
            return None
        except OSError as error:
            raise PullError(f"{target} cannot be read: {error.strerror}.") from error
        return record

    def _download(self, listing: ModelListing, target: Path) -> ModelRecord:
        unfinished = PartialDirectory(target)
        unfinished.begin(listing)
        candidates = self._store.candidates(listing)
        for file in listing.files:
            path = unfinished.path(file)
            if not path.exists():
                link_candidate(file, path, candidates)
        unfinished.check_space(listing.files, self._limits)
        self._progress.total_bytes = sum(file.size for file in listing.files)
        # The largest first: the last ones then end at about the same time.
        files = sorted(listing.files, key=lambda file: -file.size)
        jobs = [bind(self._bring, file, unfinished.path(file)) for file in files]
        digests = ParallelJobs(jobs, self._limits.parallel, self._stop).run(self._tick)
        found = {file.path: digest for file, digest in zip(files, digests, strict=True)}
        self._check(unfinished, listing)
        record = _record(listing, found, unfinished)
        unfinished.finish(record)
        return record

    def _bring(self, file: RemoteFile, path: Path) -> str:
        """Have a file at a path; return its SHA-256."""
        return (
            self._is_complete(file, path)
            or FileTransfer(
                self._source, file, path, self._limits, self._stop, self._progress
            ).run()
        )

    def _is_complete(self, file: RemoteFile, path: Path) -> str:
        """Return the SHA-256 of a file that is there already; empty: it is not, or another one."""
        try:
            if path.stat().st_size != file.size:
                return ""
            if file.digest is None:  # nothing says whether it is the same
                path.unlink()
                return ""
            digest = FileHash(file.digest, file.size)
            with path.open("rb") as opened:
                while piece := opened.read(_PIECE_BYTES):
                    if self._stop.is_set():
                        raise PullStoppedError
                    digest.update(piece)
            if digest.matches():
                self._progress.add_present(file.size)
                return digest.sha256
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise PullError(f"{path} cannot be read: {error.strerror}.") from error
        return ""

    def _check(self, unfinished: PartialDirectory, listing: ModelListing) -> None:
        """Check what came as a checkpoint: its source may have it damaged."""
        paths = {file.path: unfinished.path(file) for file in listing.files}
        directory = unfinished.directory
        try:
            check_tree(directory)
            if self._selection.is_default and INDEX in paths:
                check_shards(directory, weight_map(directory), weight_files(directory))
            else:
                for path in paths.values():
                    if path.suffix == ".safetensors":
                        check_shard(path)
        except CheckpointError as error:
            raise PullError(f"{self._source.name} is not a usable checkpoint: {error}") from error


def _own_record(target: Path) -> ModelRecord:
    """Return the record of a directory that a download wrote.

    Raises:
        PullError: none did.
        CheckpointError: it is damaged.
    """
    if not target.is_dir():
        raise PullError(f"{target} is not a directory.")
    check_directory(target)
    record = read_record(target)
    if record is None:
        raise PullError(
            f"{target} has files that are not of `baton models pull`: choose another directory."
        )
    return record


def _covers(record: ModelRecord, listing: ModelListing) -> bool:
    """Return whether a record has all files of a listing."""
    have = {
        (file.path, file.size, digest)
        for file in record.files
        for digest in (f"sha256:{file.sha256}", file.origin)
    }
    if all(file.digest is not None for file in listing.files):
        return all((file.path, file.size, str(file.digest)) in have for file in listing.files)
    return (record.source, record.revision) == (listing.source, listing.revision)


def _record(
    listing: ModelListing, digests: Mapping[str, str], unfinished: PartialDirectory
) -> ModelRecord:
    files = [
        RecordedFile(
            path=file.path,
            size=file.size,
            sha256=digests[file.path],
            origin="" if file.digest is None or file.digest.kind == "sha256" else str(file.digest),
            mtime=int(unfinished.path(file).stat().st_mtime),
        )
        for file in listing.files
    ]
    return ModelRecord(
        "baton.model/1", listing.source, listing.revision, tuple(files), listing.requested
    )
