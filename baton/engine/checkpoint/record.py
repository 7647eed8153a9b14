"""The completion record of a checkpoint: which files it has, of which sizes and digests.

`baton models pull` writes it as the last file of a download, and renames the directory once it is
there. So a directory with a record was complete when it was written, and what is missing or
different now was lost or changed since.

`baton-model.json`, in UTF-8:

    {"format": "baton.model/1", "source": "hf://org/name", "revision": "<commit>",
     "requested": "main",
     "files": [{"path": "config.json", "size": 612, "sha256": "<64 hex digits>",
                "origin": "git-sha1:<40 hex digits>", "mtime": 1764093600}, …]}

The same file is the list of an `https://` source.
"""

import fcntl
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from baton.engine.checkpoint.paths import check_paths
from baton.engine.support.documents import CheckpointError

RECORD = "baton-model.json"
JOURNAL = "baton-partial.json"
"""What an unfinished download has in its place."""
PARTIAL_SUFFIX = ".partial"
"""Ends the name of an unfinished download's directory."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
MAX_FILES = 10_000

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class RecordedFile(msgspec.Struct, frozen=True):
    """A file of a complete checkpoint."""

    path: str
    """Relative, with slashes."""
    size: _Count
    """In bytes."""
    sha256: _Digest
    origin: str = ""
    """The digest that the source gave, `kind:value`; empty: none other than the SHA-256."""
    mtime: int = 0
    """Its time of modification, in whole seconds since 1970, set when it had this digest."""


class ModelRecord(msgspec.Struct, frozen=True):
    """A completion record."""

    format: Literal["baton.model/1"]
    source: str
    """Where the files are from, without credentials."""
    revision: str
    """What was current there: a commit, or a digest of the list of files."""
    files: Annotated[tuple[RecordedFile, ...], msgspec.Meta(min_length=1, max_length=MAX_FILES)]
    requested: str = ""
    """What was asked for there: a branch, a tag or a commit; empty: what is current."""


def read_record(directory: Path) -> ModelRecord | None:
    """Return the completion record of a directory; None: it has none.

    Raises:
        CheckpointError: it is damaged.
    """
    path = directory / RECORD
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_RECORD_BYTES else b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if not data and size:
        raise CheckpointError(f"{path} has {size} bytes, more than {MAX_RECORD_BYTES}.")
    return parse_record(data, str(path))


def parse_record(data: bytes, name: str) -> ModelRecord:
    """Return a completion record.

    Args:
        data: its bytes.
        name: what an error calls it.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        record = msgspec.json.decode(data, type=ModelRecord)
        check_paths([file.path for file in record.files])
    except (msgspec.DecodeError, ValueError) as error:
        raise CheckpointError(f"{name} is damaged: {error}.") from error
    return record


def encode_record(record: ModelRecord) -> bytes:
    """Return the bytes of a completion record."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def hold_record(directory: Path, alone: bool = False) -> int | None:
    """Lock the completion record of a checkpoint.

    Workers share the lock while they serve the checkpoint, so that a download into the same cache
    does not remove it as an old revision.

    Args:
        directory: of the checkpoint.
        alone: lock it only if no other process holds it.

    Returns:
        A descriptor that holds the lock until it is closed; None: there is no record, its file
        system has no locks, or another process's lock excludes this one.
    """
    try:
        file = os.open(directory / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
