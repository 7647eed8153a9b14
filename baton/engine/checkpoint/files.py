"""The safetensors files of a checkpoint: their list, their contents, and their bytes.

Independent of torch: each engine reads tensors itself.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from baton.engine.support.documents import CheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_INDEX_BYTES = 64 * 1024 * 1024
DIGEST_BYTES = 16
_PIECE_BYTES = 1024 * 1024


class _Index(msgspec.Struct):
    """The fields of an index that are used."""

    weight_map: dict[str, str]


class TensorShape(NamedTuple):
    """A tensor's entry in the header of a safetensors file."""

    dtype: str
    """Data type in safetensors' names: `F32`, `BF16`, `I32`."""
    shape: tuple[int, ...]


def weight_map(directory: Path) -> Mapping[str, str] | None:
    """Return the file of each tensor, by the checkpoint's index; None: it has no index.

    Raises:
        CheckpointError: the index is damaged, or names what is not in the directory.
    """
    index = directory / INDEX
    try:
        size = index.stat().st_size
        if size > MAX_INDEX_BYTES:
            raise CheckpointError(f"{index} has {size} bytes, more than {MAX_INDEX_BYTES}.")
        found = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{index} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{index} is damaged: it has no weight_map.") from error
    if not found:
        raise CheckpointError(f"{index} is damaged: its weight_map is empty.")
    for name in sorted(set(found.values())):
        if Path(name).name != name:
            raise CheckpointError(
                f"{index} names {name!r}, which is not a file in the same directory."
            )
    return found


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint, in name order.

    Raises:
        CheckpointError: one is missing, or the index is damaged.
    """
    weights = weight_map(directory)
    names = sorted({SINGLE} if weights is None else set(weights.values()))
    for name in names:
        if not (directory / name).is_file():
            reason = f"{INDEX} does not exist either" if weights is None else f"{INDEX} names it"
            raise CheckpointError(f"{directory / name} is missing ({reason}).")
    return [directory / name for name in names]


def tensor_shapes(paths: Iterable[Path]) -> Mapping[str, TensorShape]:
    """Return all tensors of these files, by name, without reading their data.

    Raises:
        CheckpointError: a file cannot be read, or is not a safetensors file.
    """
    # Takes as long to import as all other checks before an engine is created.
    from safetensors import SafetensorError, safe_open

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
