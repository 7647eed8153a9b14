"""The safetensors files of a checkpoint: their list, their contents, and their bytes.

Independent of torch: each engine reads tensors itself.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from safetensors import SafetensorError, safe_open

from baton.engine.support.documents import CheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DIGEST_BYTES = 16
_PIECE_BYTES = 1024 * 1024


class TensorShape(NamedTuple):
    """A tensor's entry in the header of a safetensors file."""

    dtype: str
    """Data type in safetensors' names: `F32`, `BF16`, `I32`."""
    shape: tuple[int, ...]


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, in name order.

    Raises:
        CheckpointError: one is missing, or the index is damaged.
    """
    index = directory / INDEX
    names = {SINGLE}
    if index.exists():
        try:
            names = set(msgspec.json.decode(index.read_bytes())["weight_map"].values())
        except (msgspec.DecodeError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index} is damaged: it has no weight_map.") from error
    for name in sorted(names):
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(
                f"{index} names {name!r}, which is not a file in the same directory."
            )
        if not (directory / name).is_file():
            reason = f"{INDEX} names it" if index.exists() else f"{INDEX} does not exist either"
            raise CheckpointError(f"{directory / name} is missing ({reason}).")
    return [directory / name for name in sorted(names)]


def tensor_shapes(paths: Iterable[Path]) -> Mapping[str, TensorShape]:
    """Return all tensors of these files, by name, without reading their data.

    Raises:
        CheckpointError: a file cannot be read, or is not a safetensors file.
    """
    shapes: dict[str, TensorShape] = {}
    for path in paths:
        try:
            with safe_open(path, framework="numpy") as file:
                for name in file.keys():  # noqa: SIM118  # it is no mapping
                    part = file.get_slice(name)
                    shapes[name] = TensorShape(part.get_dtype(), tuple(part.get_shape()))
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}.") from error
    return shapes


def files_digest(begin: bytes, paths: Iterable[Path]) -> bytes:
    """Return 16 bytes of SHA-256 over `begin` and the files, each preceded by its length.

    Raises:
        CheckpointError: a file cannot be read.
    """
    digest = sha256(begin)
    for path in paths:
        try:
            digest.update(path.stat().st_size.to_bytes(8, "little"))
            with path.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.digest()[:DIGEST_BYTES]
