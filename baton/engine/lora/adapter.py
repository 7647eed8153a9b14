"""Adapters in directories: checked against what a model takes, and read."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from mmap import mmap
from pathlib import Path

from baton.engine.checkpoint.files import DIGEST_BYTES, tensor_shapes, weight_files
from baton.engine.lora.config import AdapterConfig, AdapterError, read_config
from baton.engine.lora.limits import AdapterLimits, checkpoint_limits
from baton.engine.lora.weights import check_weights, find_weights
from baton.settings import StartupError

_PIECE_BYTES = 1024 * 1024


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
    bytes: int = 0
    """Length of its safetensors file."""
    location: str = ""
    """URL from which the directory was downloaded; empty: it was not."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter in memory: its bytes are those of its digest."""

    config: AdapterConfig
    weights: memoryview
    """A safetensors file, in memory that its tensors may share and change."""


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
    limits = checkpoint_limits(tensor_shapes(weight_files(model)), max_rank, len(directories))
    found = []
    for name, directory in directories.items():
        try:
            found.append(read_adapter(name, directory, limits))
        except AdapterError as error:
            raise StartupError(
                f"The adapter {name!r} of BATON_ENGINE_ADAPTERS cannot be used: {error}."
            ) from error
    return tuple(found)


def read_adapter(name: str, directory: Path, limits: AdapterLimits) -> Adapter:
    """Read and check an adapter; hashes its files without loading tensors.

    Args:
        name: what clients request.
        directory: in PEFT's layout.
        limits: of the engine and its model.

    Raises:
        AdapterError: it cannot be used; the text gives the reason and the remedy.
    """
    config = read_config(directory)
    if config.max_rank > limits.max_rank:
        raise AdapterError(
            f"its rank is {config.max_rank}, and engine.max_adapter_rank is {limits.max_rank}: set "
            f"BATON_ENGINE_MAX_ADAPTER_RANK to {config.max_rank}, or remove the adapter"
        )
    path = find_weights(directory)
    try:
        modules = check_weights(path, config, limits)
        size = path.stat().st_size
        digest = sha256(_digest_input(config, size))
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error.strerror}") from error
    found = digest.digest()[:DIGEST_BYTES]
    return Adapter(name, directory.absolute(), found, config.max_rank, modules, size)


def read_files(adapter: Adapter) -> AdapterFiles:
    """Read an adapter into memory, if it is still the one that was checked.

    Raises:
        AdapterError: a file is missing, or was changed.
    """
    config = read_config(adapter.directory)
    path = find_weights(adapter.directory)
    # Python takes no time for it, however long it is: others would wait for the interpreter.
    memory = memoryview(mmap(-1, adapter.bytes + 1))
    length = 0
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(memory[length:]):
                length += count
    except OSError as error:
        raise AdapterError(f"{path} cannot be read: {error.strerror}") from error
    weights = memory[:length]
    digest = sha256(_digest_input(config, length))
    digest.update(weights)
    if digest.digest()[:DIGEST_BYTES] != adapter.digest:
        raise AdapterError(
            f"the files in {adapter.directory} are not those that were registered: register the "
            "adapter again"
        )
    return AdapterFiles(config, weights)


def _digest_input(config: AdapterConfig, size: int) -> bytes:
    """Return what precedes the bytes of the safetensors file in a digest's input."""
    return b"baton.adapter.1\0" + config.to_bytes() + size.to_bytes(8, "little")
