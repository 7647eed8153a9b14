"""The adapters that the settings name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from baton.engine.checkpoint.files import (
    TensorShape,
    files_digest,
    tensor_shapes,
    weight_files,
)
from baton.engine.lora.config import AdapterError, read_config
from baton.engine.lora.weights import check_weights, find_weights
from baton.engine.support.documents import CheckpointError
from baton.settings import StartupError


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that fits its model; the engine loads the tensors."""

    name: str
    """What clients request."""
    directory: Path
    """Directory in PEFT's layout; absolute."""
    digest: bytes
    """16 bytes over scaling and matrices: equal for adapters that compute the same function."""
    rank: int
    """Highest rank of any module."""
    modules: tuple[str, ...]
    """Last names of the modules that it changes, sorted: `q_proj`, `v_proj`."""


def read_adapters(
    directories: Mapping[str, Path], model: Path, max_rank: int
) -> tuple[Adapter, ...]:
    """Read and check the adapters of a model; hashes their files without loading tensors.

    Args:
        directories: by the adapters' names.
        model: the model's checkpoint directory.
        max_rank: the highest rank that an adapter may have.

    Raises:
        CheckpointError: the model's own files are missing or damaged.
        StartupError: an adapter cannot be used; the text names it, the reason and the remedy.
    """
    if not directories:
        return ()
    shapes = tensor_shapes(weight_files(model))
    found = []
    for name, directory in directories.items():
        try:
            found.append(_read(name, directory, shapes, max_rank))
        except (AdapterError, CheckpointError) as error:
            text = str(error).removesuffix(".")
            raise StartupError(
                f"The adapter {name!r} of BATON_ENGINE_ADAPTERS cannot be used: {text}."
            ) from error
    return tuple(found)


def _read(name: str, directory: Path, model: Mapping[str, TensorShape], max_rank: int) -> Adapter:
    config = read_config(directory)
    if config.max_rank > max_rank:
        raise AdapterError(
            f"its rank is {config.max_rank}, and engine.max_adapter_rank is {max_rank}: set "
            f"BATON_ENGINE_MAX_ADAPTER_RANK to {config.max_rank}, or remove the adapter"
        )
    path = find_weights(directory)
    modules = check_weights(path, config, model)
    digest = files_digest(b"baton.adapter.1\0" + config.to_bytes(), [path])
    return Adapter(name, directory.absolute(), digest, config.max_rank, modules)
