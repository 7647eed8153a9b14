"""An adapter's matrices in the order and layout of the linear maps that they are added to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.lora.config import AdapterError
from baton.engine.lora.tensors import file_tensors
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


@dataclass(frozen=True, slots=True)
class StackedMatrices:
    """The matrices of one module in several maps, which are alike."""

    first: int
    a: Tensor
    """[maps, rank, inputs]"""
    b: Tensor
    """[maps, outputs, rank]"""
    scale: float

    def of_map(self, index: int) -> PartMatrices:
        """Return those of one map."""
        return PartMatrices(self.first, self.a[index], self.b[index], self.scale)


Stack = tuple[Sequence[int], Sequence[StackedMatrices]]
"""Numbers of maps, and the matrices of their modules."""


def load_matrices(
    files: AdapterFiles, maps: Sequence[MapShape], dtype: torch.dtype, device: torch.device
) -> Sequence[Stack]:
    """Return an adapter's matrices for all maps that have some; any thread may call it.

    Layers of a model are alike. Their matrices are converted together: each call of torch is one
    that other threads may have to wait for.

    Args:
        files: of the adapter.
        maps: of the model.
        dtype, device: of the model's weights.

    Raises:
        AdapterError: the file is damaged, or does not fit.
    """
    pairs: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in file_tensors(files.weights).items():
        if match := MATRIX.fullmatch(name):
            pairs[match[1]][match[2]] = tensor
    alike: dict[object, list[tuple[int, Sequence[_Part]]]] = defaultdict(list)
    for number, shape in enumerate(maps):
        parts = [
            _part(files, shape.inputs, part, pairs.pop(part.module))
            for part in shape.parts
            if part.module in pairs
        ]
        if parts:
            alike[tuple(part.kind for part in parts)].append((number, parts))
    if pairs:
        raise AdapterError(f"the model has no layer {min(pairs)}")
    return [
        (
            [number for number, _ in group],
            [_stack(parts, dtype, device) for parts in zip(*(p for _, p in group), strict=True)],
        )
        for group in alike.values()
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    """The matrices of one module as the file has them."""

    part: MapPart
    a: Tensor
    b: Tensor
    scale: float

    @property
    def kind(self) -> object:
        """Equal for modules whose matrices can be stacked."""
        shapes = self.a.shape, self.a.dtype, self.b.shape, self.b.dtype
        return self.part.first, id(self.part.order), shapes, self.scale


def _part(files: AdapterFiles, inputs: int, part: MapPart, pair: Mapping[str, Tensor]) -> _Part:
    rank = files.config.rank_of(part.module)
    a, b = pair.get("A"), pair.get("B")
    if a is None or b is None or a.shape != (rank, inputs) or b.shape != (part.outputs, rank):
        raise AdapterError(f"the matrices of {part.module} do not fit")
    return _Part(part, a, b, files.config.scale_of(part.module))


def _stack(parts: Sequence[_Part], dtype: torch.dtype, device: torch.device) -> StackedMatrices:
    first = parts[0]
    a = torch.stack([part.a for part in parts]).to(device, dtype)
    b = torch.stack([part.b for part in parts]).to(device, dtype)
    if first.part.order is not None:
        b = b[:, first.part.order]
    return StackedMatrices(first.part.first, a, b, first.scale)
