"""Whether a checkpoint is complete and undamaged, checked before anything is started with it.

Without a completion record: what the tree, the index and the headers of the weights show, in
milliseconds. With one: also that every file is there, of its size and digest.
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from baton.engine.checkpoint.files import weight_files, weight_map
from baton.engine.checkpoint.record import (
    JOURNAL,
    PARTIAL_SUFFIX,
    ModelRecord,
    RecordedFile,
    read_record,
)
from baton.engine.checkpoint.shards import check_shards
from baton.engine.checkpoint.tree import check_tree
from baton.engine.support.documents import CheckpointError

DigestCheck = Literal["changed", "all", "off"]
"""Whose digests are compared with the record: of files whose time of modification differs, of all
files, or of none."""
_PIECE_BYTES = 1024 * 1024
_THREADS = 4


def check_directory(directory: Path) -> None:
    """Check that a directory is no unfinished download, and that no file leads out of it.

    For before any file is read. A directory that does not exist is left to whoever reads it.

    Raises:
        CheckpointError: it is one, or a file does; the text names it.
    """
    if (directory / JOURNAL).exists():
        raise CheckpointError(
            f"{directory} is an unfinished download: run the same `baton models pull` again, which "
            "continues it."
        )
    partial = directory.with_name(directory.name + PARTIAL_SUFFIX)
    if not directory.exists() and (partial / JOURNAL).exists():
        raise CheckpointError(
            f"{directory} is not there yet: {partial} is an unfinished download of it. Run the "
            "same `baton models pull` again, which continues it."
        )
    check_tree(directory)


def check_contents(directory: Path, weights: bool, digests: DigestCheck) -> None:
    """Check that the files of a checkpoint are there and undamaged.

    Args:
        directory: of the checkpoint, which passed `check_directory`.
        weights: whether its weights are needed.
        digests: which digests are compared, if it has a completion record. Each costs reading the
            file, at about 1 s per GiB and core.

    Raises:
        CheckpointError: they are not; the text names the file.
    """
    record = read_record(directory)
    if record is not None:
        check_record(directory, record, digests)
    if weights:
        check_shards(directory, weight_map(directory), weight_files(directory))


def check_record(directory: Path, record: ModelRecord, digests: DigestCheck) -> None:
    """Check the files of a checkpoint by its completion record.

    Raises:
        CheckpointError: one is missing, has another size, or another digest.
    """
    changed = [file for file in record.files if _is_changed(directory, file)]
    checked: Sequence[RecordedFile] = {"changed": changed, "all": record.files, "off": ()}[digests]
    if not checked:
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        for file, digest in zip(
            checked, pool.map(lambda file: file_digest(directory / file.path), checked), strict=True
        ):
            if digest != file.sha256:
                pool.shutdown(wait=False, cancel_futures=True)
                raise CheckpointError(
                    f"{directory / file.path} is not the file that was downloaded: its SHA-256 is "
                    f"{digest}, and its record says {file.sha256}. Download the checkpoint again."
                )


def mark_unchanged(directory: Path, record: ModelRecord) -> bool:
    """Set the recorded times of files whose digests were compared: next time they are not read.

    Returns:
        Whether the directory can be written.
    """
    try:
        for file in record.files:
            os.utime(directory / file.path, (file.mtime, file.mtime))
    except OSError:
        return False
    return True


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in 64 hexadecimal digits.

    Raises:
        CheckpointError: it cannot be read.
    """
    digest = sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def _is_changed(directory: Path, file: RecordedFile) -> bool:
    """Return whether a file may have another content than recorded.

    Raises:
        CheckpointError: it is missing, or has another size.
    """
    path = directory / file.path
    try:
        found = path.stat()
    except OSError as error:
        raise CheckpointError(
            f"{path} is missing, which the completion record lists: the copy of the checkpoint is "
            "not complete; copy or download it again."
        ) from error
    if found.st_size != file.size:
        raise CheckpointError(
            f"{path} has {found.st_size} bytes, and its completion record says {file.size}: the "
            "copy of the checkpoint is not complete; copy or download it again."
        )
    return found.st_mtime_ns != file.mtime * 10**9
