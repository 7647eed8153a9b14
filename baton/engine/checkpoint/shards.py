"""Checks of safetensors files by their headers, without reading tensors.

The format is https://github.com/huggingface/safetensors#format: 8 bytes with the header's length,
the header in JSON, and the tensors' bytes, one after another.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from baton.engine.support.documents import CheckpointError

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library."""
_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_POINTER = b"version https://git-lfs"[:_LENGTH_BYTES]


class _Entry(msgspec.Struct):
    """A tensor's entry in a header."""

    data_offsets: tuple[int, int]
    """First byte and the one after the last, counted from the end of the header."""


def check_shard(path: Path) -> frozenset[str]:
    """Check that a file has all bytes that its header names; return the names of its tensors.

    Raises:
        CheckpointError: it is shorter or longer, or its header is damaged or too long.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(_LENGTH_BYTES)
            if first == _POINTER:
                raise CheckpointError(
                    f"{path} is a pointer of Git LFS, not the file itself: run `git lfs pull`, or "
                    "download the checkpoint again."
                )
            length = int.from_bytes(first, "little")
            if length > MAX_HEADER_BYTES:
                raise CheckpointError(
                    f"{path} is damaged: its header would have {length} bytes, and at most "
                    f"{MAX_HEADER_BYTES} are supported."
                )
            if len(first) < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
                raise CheckpointError(_cut(path, f"{size} bytes are less than its header"))
            header = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    entries = _decode(path, header)
    end = _check_offsets(path, entries)
    wanted = _LENGTH_BYTES + length + end
    if size < wanted:
        raise CheckpointError(_cut(path, f"it has {size} of {wanted} bytes"))
    if size > wanted:
        raise CheckpointError(
            f"{path} is damaged: it has {size} bytes, and its header names {wanted}."
        )
    return frozenset(entries)


def check_shards(directory: Path, weights: Mapping[str, str] | None, paths: list[Path]) -> None:
    """Check the weights of a checkpoint.

    Args:
        directory: of the checkpoint.
        weights: the file of each tensor, by the index; None: there is no index.
        paths: the files, each of which exists.

    Raises:
        CheckpointError: a file is damaged, or has not the tensors that the index says.
    """
    found = {path.name: check_shard(path) for path in paths}
    for tensor, name in sorted((weights or {}).items()):
        if tensor not in found[name]:
            raise CheckpointError(
                f"{directory / name} has no tensor {tensor}, which the index says it has: it is "
                "another checkpoint's file; download it again."
            )


def _decode(path: Path, header: bytes) -> dict[str, _Entry]:
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        return {
            name: msgspec.json.decode(entry, type=_Entry)
            for name, entry in raw.items()
            if name != _METADATA
        }
    except (msgspec.DecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its header is no JSON of tensors.") from error


def _check_offsets(path: Path, entries: Mapping[str, _Entry]) -> int:
    """Check that tensors follow each other without gaps; return where the last one ends."""
    end = 0
    for begin, after in sorted(entry.data_offsets for entry in entries.values()):
        if begin != end or after < begin:
            raise CheckpointError(f"{path} is damaged: tensors overlap, or leave a gap.")
        end = after
    return end


def _cut(path: Path, how: str) -> str:
    return f"{path} is incomplete ({how}): download the checkpoint again."
