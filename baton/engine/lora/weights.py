"""An adapter's matrices, checked against the weights of the model to which they are added."""

import re
from collections.abc import Mapping
from pathlib import Path

from baton.engine.checkpoint.files import TensorShape, tensor_shapes
from baton.engine.lora.config import AdapterConfig, AdapterError
from baton.engine.lora.limits import FLOATS, UNKNOWN, AdapterLimits, Shape
from baton.engine.support.documents import CheckpointError

WEIGHTS = "adapter_model.safetensors"
_PICKLES = ("adapter_model.bin", "adapter_model.pt")
MATRIX = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_(A|B)\.weight")
"""Names of matrices: the module, and which of its two it is."""
_SHOWN = 3


def find_weights(directory: Path) -> Path:
    """Return the path of an adapter's safetensors file.

    Raises:
        AdapterError: there is none.
    """
    path = directory / WEIGHTS
    if path.is_file():
        return path
    for name in _PICKLES:
        if (directory / name).exists():
            raise AdapterError(
                f"{directory / name} is pickle, which is not supported: save the adapter as "
                f"{WEIGHTS} "
                "(PEFT's save_pretrained with safe_serialization=True)"
            )
    raise AdapterError(f"{path} is missing")


def check_weights(path: Path, config: AdapterConfig, limits: AdapterLimits) -> tuple[str, ...]:
    """Check an adapter's matrices; return the last names of the modules that it changes, sorted.

    Every matrix A is [rank, inputs] and every B is [outputs, rank] of a layer [outputs, inputs].

    Args:
        path: the adapter's safetensors file.
        config: of the adapter.
        limits: of the engine and its model.

    Raises:
        AdapterError: the file is damaged or too long, or a matrix does not fit.
    """
    size, most = path.stat().st_size, limits.max_bytes
    if most and size > most:
        raise AdapterError(
            f"{path} has {size} bytes, and an adapter of all layers of this model at the highest "
            f"rank has {most}: it was trained on another model"
        )
    try:
        tensors = tensor_shapes([path])
    except CheckpointError as error:
        raise AdapterError(str(error).removesuffix(".")) from error
    matrices = _matrices(path, tensors)
    shapes = {module: limits.shape_of(module) for module in matrices}
    missing = sorted(module for module, shape in shapes.items() if shape is None)
    if missing:
        raise AdapterError(
            f"{path} has matrices for {len(missing)} modules that the model does not have, or that "
            f"its engine does not adapt, {', '.join(missing[:_SHOWN])} among them: it was trained "
            "on another model, or on layers that are not supported"
        )
    for module, (a, b) in matrices.items():
        _check_shapes(path, module, (a, b), config.rank_of(module), shapes[module] or UNKNOWN)
    return tuple(sorted({module.rpartition(".")[2] for module in matrices}))


def _check_shapes(
    path: Path, module: str, pair: tuple[TensorShape, TensorShape], rank: int, layer: Shape
) -> None:
    a, b = pair
    outputs, inputs = (b.shape[0], a.shape[1]) if layer == UNKNOWN else layer
    for letter, found, expected in (("A", a, (rank, inputs)), ("B", b, (outputs, rank))):
        if found.shape != expected:
            raise AdapterError(
                f"{path} has lora_{letter} of {module} of shape {list(found.shape)}; with rank "
                f"{rank} the model's needs {list(expected)}: it was trained on another model"
            )


def _matrices(
    path: Path, tensors: Mapping[str, TensorShape]
) -> dict[str, tuple[TensorShape, TensorShape]]:
    """Return the two matrices of each module, each with two dimensions of floats."""
    pairs: dict[str, dict[str, TensorShape]] = {}
    for name, tensor in tensors.items():
        match = MATRIX.fullmatch(name)
        if match is None:
            raise AdapterError(
                f"{path} has {name}, which is not a LoRA matrix of a linear layer: train the "
                "adapter on linear layers only, without embeddings and modules_to_save"
            )
        if tensor.dtype not in FLOATS or len(tensor.shape) != 2:
            raise AdapterError(
                f"{path} has {name} of {tensor.dtype}{list(tensor.shape)}; it must be a matrix of "
                f"{', '.join(FLOATS)}"
            )
        pairs.setdefault(match[1], {})[match[2]] = tensor
    if not pairs:
        raise AdapterError(f"{path} has no matrices: no module of the model was trained")
    for module, pair in pairs.items():
        if len(pair) < 2:
            raise AdapterError(
                f"{path} has only lora_{min(pair)} of {module}; both A and B are required"
            )
    return {module: (pair["A"], pair["B"]) for module, pair in pairs.items()}
