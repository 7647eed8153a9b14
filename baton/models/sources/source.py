"""What a source of models is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from baton.models.digests import Digest


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a model, as its source lists it."""

    path: str
    """Relative, with slashes; not checked yet."""
    size: int
    """In bytes."""
    digest: Digest | None
    """None: the source has none, and nothing is between it and the copy."""


@dataclass(frozen=True, slots=True)
class ModelListing:
    """What a source has now."""

    source: str
    """Its address, without credentials."""
    revision: str
    """A commit, or a digest of the list."""
    files: tuple[RemoteFile, ...]
    requested: str = ""
    """The revision that was asked for, if the source has names of revisions."""


@dataclass(frozen=True, slots=True)
class FileBody:
    """Bytes of a file, from some position on."""

    offset: int
    """Of the first byte: as asked for, or 0 if the source cannot begin there."""
    pieces: Iterator[bytes]
    """Each raises TransientError or PullError where reading fails."""


class ModelSource(Protocol):
    """A place that models come from."""

    name: str
    """Its address as users write it, without credentials."""
    identity: str
    """Its address without a revision."""
    requested: str
    """The revision in its address; empty: there is none."""

    def list_files(self, wants: Callable[[str], bool]) -> ModelListing:
        """Return the files.

        Args:
            wants: whether the file of a path is needed; the others are left out.

        Raises:
            PullError: the source cannot be read, does not have the model, or its list is damaged.
            TransientError: an attempt failed.
        """

    def open(self, file: RemoteFile, offset: int) -> AbstractContextManager[FileBody]:
        """Return the bytes of a file.

        Args:
            file: of this source's list.
            offset: the first byte that is needed, less than the file's size.

        Raises:
            PullError: it cannot be read, or is not the file of the list.
            TransientError: this attempt failed.
        """

    def close(self) -> None:
        """Close connections."""


def list_revision(files: Sequence[RemoteFile]) -> str:
    """Return a name of a list of files: equal for equal files; 16 hexadecimal digits."""
    digest = sha256(b"baton.models.list.1\0")
    for file in sorted(files, key=lambda file: file.path):
        digest.update(f"{file.path}\0{file.size}\0{file.digest}\0".encode())
    return digest.hexdigest()[:16]
