"""Linear maps to whose outputs each row's adapter is added."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from baton.engine.lora.adapter import AdapterFiles
from baton.engine.lora.limits import Shape
from baton.engine.torch.linear import Linear
from baton.engine.torch.lora.matrices import MapPart, MapShape, load_matrices
from baton.engine.torch.lora.product import LowRankProduct

NO_ADAPTER = -1
"""Owner of a row of the model itself."""

Matrices = Sequence[Any]
"""An adapter's matrices for each map, packed."""


@dataclass(slots=True)
class AdaptedMaps:
    """The maps of a model that adapters are added to, and the adapters of the running step.

    Owned by the engine's thread.
    """

    product: LowRankProduct
    shapes: list[MapShape] = field(default_factory=list)
    _adapters: Sequence[Matrices] = ()
    _joined: list[Any] = field(default_factory=list)
    """Of each map, the matrices of `_adapters`; None: not joined yet. Steps mostly have those of
    the step before.
    """
    _owners: Tensor | None = None
    """[rows] of the step: which adapter each row has; None: none has any."""
    _rows: Tensor | None = None
    """Rows with an adapter, in the order of adapters; None: there are none."""
    _ends: Tensor | None = None

    def wrap(self, base: Linear, inputs: int, parts: Iterable[MapPart]) -> "AdaptedLinear":
        """Return a map that also adds adapters."""
        self.shapes.append(MapShape(inputs, tuple(parts)))
        return AdaptedLinear(base, self, len(self.shapes) - 1)

    def module_shapes(self) -> Mapping[str, Shape]:
        """Return the shapes of all modules, by their full names."""
        return {
            part.module: (part.outputs, shape.inputs)
            for shape in self.shapes
            for part in shape.parts
        }

    def load(self, files: AdapterFiles, dtype: torch.dtype, device: torch.device) -> Matrices:
        """Return an adapter's matrices; any thread may call it.

        Raises:
            AdapterError: as of `load_matrices`.
        """
        found = [self.product.pack(())] * len(self.shapes)
        for numbers, parts in load_matrices(files, self.shapes, dtype, device):
            for number, packed in zip(numbers, self.product.pack_stacked(parts), strict=True):
                found[number] = packed
        return found

    def begin(self, adapters: Sequence[Matrices], owners: Sequence[int]) -> None:
        """Set the adapters of a step.

        Args:
            adapters: those that occur in it.
            owners: of each row, the number of its adapter, or NO_ADAPTER.
        """
        known = zip(adapters, self._adapters, strict=False)
        same = len(adapters) == len(self._adapters) and all(a is b for a, b in known)
        if not same:
            self._adapters = adapters
            self._joined = [None] * len(self.shapes)
        self._owners = torch.tensor(owners) if adapters else None
        self._group()

    def select(self, rows: Tensor) -> None:
        """Continue the step with some of its rows only."""
        if self._owners is not None:
            self._owners = self._owners[rows.to(self._owners.device)]
            self._group()

    def add(self, number: int, x: Tensor, y: Tensor) -> None:
        """Add the rows' adapters to the outputs of a map, in place.

        Args:
            number: of the map.
            x: [rows, inputs]
            y: [rows, outputs]
        """
        if self._rows is None or self._ends is None:
            return
        joined = self._joined[number]
        if joined is None:
            joined = self.product.join([adapter[number] for adapter in self._adapters])
            self._joined[number] = joined
        self.product.add(x, y, joined, self._rows, self._ends)

    def _group(self) -> None:
        self._rows = self._ends = None
        if self._owners is None:
            return
        order = self._owners.argsort(stable=True)
        counts = torch.bincount(self._owners + 1, minlength=len(self._adapters) + 1)
        rows = order[counts[0] :]  # rows without an adapter come first
        if rows.numel():
            self._rows, self._ends = rows, counts[1:].cumsum(0)


@dataclass(frozen=True, slots=True)
class AdaptedLinear:
    """A linear map that adds the rows' adapters."""

    base: Linear
    maps: AdaptedMaps
    number: int

    def __call__(self, x: Tensor, /) -> Tensor:
        """[tokens, in] → [tokens, out]"""
        y = self.base(x)
        self.maps.add(self.number, x, y)
        return y
