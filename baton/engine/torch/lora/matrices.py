"""An adapter's matrices in the order and layout of the linear maps that they are added to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.lora.config import AdapterError
from baton.engine.lora.weights import MATRIX


@dataclass(frozen=True, slots=True)
class MapPart:
    """Outputs of a linear map that are one module of the checkpoint."""

    module: str
    first: int
    """The first of its outputs."""
    outputs: int
    order: Tensor | None = None
    """Places [outputs] that its outputs come from; None: as they are."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """A linear map that adapters are added to."""

    inputs: int
    parts: tuple[MapPart, ...]


@dataclass(frozen=True, slots=True)
class PartMatrices:
    """The matrices of one module: its outputs become y + b · (a · x · scale)."""

    first: int
    """The first output that they are added to."""
    a: Tensor
    """[rank, inputs]"""
    b: Tensor
    """[outputs, rank]"""
    scale: float


def load_matrices(
    files: AdapterFiles, maps: Sequence[MapShape], dtype: torch.dtype, device: torch.device
) -> Sequence[Sequence[PartMatrices]]:
    """Return an adapter's matrices for each map, in the order of the maps; any thread may call it.

    Args:
        files: of the adapter.
        maps: of the model.
        dtype, device: of the model's weights.

    Raises:
        AdapterError: the file is damaged, or does not fit.
    """
    try:
        tensors = load(files.weights)
    except SafetensorError as error:
        raise AdapterError(f"its safetensors file is damaged: {error}") from error
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if match := MATRIX.fullmatch(name):
            pairs.setdefault(match[1], {})[match[2]] = tensor
    found = [
        [
            _part(files, shape.inputs, part, pairs.pop(part.module), dtype, device)
            for part in shape.parts
            if part.module in pairs
        ]
        for shape in maps
    ]
    if pairs:
        raise AdapterError(f"the model has no layer {min(pairs)}")
    return found


def _part(
    files: AdapterFiles,
    inputs: int,
    part: MapPart,
    pair: Mapping[str, Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> PartMatrices:
    rank = files.config.rank_of(part.module)
    a, b = pair.get("A"), pair.get("B")
    if a is None or b is None or a.shape != (rank, inputs) or b.shape != (part.outputs, rank):
        raise AdapterError(f"the matrices of {part.module} do not fit")
    if part.order is not None:
        b = b[part.order]
    scale = files.config.scale_of(part.module)
    return PartMatrices(part.first, _placed(a, dtype, device), _placed(b, dtype, device), scale)


def _placed(matrix: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    return matrix.to(device, dtype).contiguous()
