"""A model in a folder: a mounted volume, a share, another disk."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from baton.engine.checkpoint.integrity import check_directory
from baton.engine.checkpoint.record import MAX_FILES, RECORD, read_record
from baton.engine.support.documents import CheckpointError
from baton.models.digests import Digest
from baton.models.errors import PullError
from baton.models.sources.manifest import SUMS, parse_sums
from baton.models.sources.source import FileBody, ModelListing, RemoteFile, list_revision

_PIECE_BYTES = 1024 * 1024


class FolderSource:
    """Files below a directory of this machine.

    If it has a completion record or a SHA256SUMS, the files are those that it lists, with its
    digests.

    Args:
        directory: absolute.
        name: as the user wrote it.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.name = self.identity = name
        self.requested = ""

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the files; raise PullError if the directory cannot be used."""
        if not self._directory.is_dir():
            raise PullError(f"{self.name} is not a directory.")
        try:
            check_directory(self._directory)
            record = read_record(self._directory)
        except CheckpointError as error:
            raise PullError(str(error)) from error
        digests: dict[str, str] = {}
        if record is not None:
            digests = {file.path: file.sha256 for file in record.files}
        elif (self._directory / SUMS).is_file():
            digests = parse_sums(self._read_sums(), self.name)
        files = tuple(
            RemoteFile(path, size, Digest("sha256", digests[path]) if digests else None)
            for path, size in self._sizes()
            if wants(path) and (path in digests or not digests)
        )
        wanted = {path for path in digests if wants(path)}
        if missing := wanted - {file.path for file in files}:
            raise PullError(
                f"{self.name} has no {min(missing)}, which its {RECORD if record else SUMS} lists: "
                "the copy is not complete."
            )
        if record is not None:
            revision = record.revision
        else:
            revision = list_revision(files) if digests else self._times(files)
        return ModelListing(self.name, revision, files)

    @contextmanager
    def open(self, file: RemoteFile, offset: int) -> Iterator[FileBody]:
        """Open a file; its pieces raise PullError if it cannot be read."""
        yield FileBody(offset, _read(self._directory / file.path, offset))

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _times(self, files: Sequence[RemoteFile]) -> str:
        """Return a name of these files for want of digests: 16 hexadecimal digits."""
        digest = sha256(list_revision(files).encode())
        for file in files:
            digest.update(f"{(self._directory / file.path).stat().st_mtime_ns}\0".encode())
        return digest.hexdigest()[:16]

    def _read_sums(self) -> bytes:
        try:
            return (self._directory / SUMS).read_bytes()
        except OSError as error:
            raise PullError(f"{self.name}/{SUMS} cannot be read: {error.strerror}.") from error

    def _sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the path and the bytes of each file."""
        count = 0
        for path in sorted(self._directory.rglob("*")):
            if path.is_file():
                count += 1
                if count > MAX_FILES:
                    raise PullError(f"{self.name} has more than {MAX_FILES} files.")
                yield path.relative_to(self._directory).as_posix(), path.stat().st_size


def _read(path: Path, offset: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            while piece := file.read(_PIECE_BYTES):
                yield piece
    except OSError as error:
        raise PullError(f"{path} cannot be read: {error.strerror}.") from error
