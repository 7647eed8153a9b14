"""Linear maps to whose outputs each row's adapter is added."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, split
from torch.nn.functional import linear

from baton.engine.lora.limits import Shape
from baton.engine.torch.linear import Linear
from baton.engine.torch.lora.matrices import MapPart, MapShape, Matrices

NO_ADAPTER = -1
"""Owner of a row of the model itself."""


@dataclass(slots=True)
class AdaptedMaps:
    """The maps of a model that adapters are added to, and the adapters of the running step.

    Owned by the engine's thread.
    """

    single_rows: bool = False
    """Whether each row is computed alone, so that its bits do not depend on the others."""
    shapes: list[MapShape] = field(default_factory=list)
    _adapters: Sequence[Matrices] = ()
    _owners: Tensor | None = None
    """[rows] of the step: which adapter each row has; None: none has any."""
    _rows: list[tuple[Matrices, Tensor]] = field(default_factory=list)
    """Adapters and their rows."""

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

    def begin(self, adapters: Sequence[Matrices], owners: Sequence[int]) -> None:
        """Set the adapters of a step.

        Args:
            adapters: those that occur in it.
            owners: of each row, the number of its adapter, or NO_ADAPTER.
        """
        self._adapters = adapters
        self._owners = torch.tensor(owners) if adapters else None
        self._group()

    def select(self, rows: Tensor) -> None:
        """Continue the step with some of its rows only."""
        if self._owners is not None:
            self._owners = self._owners[rows.to(self._owners.device)]
            self._group()

    def add(self, number: int, x: Tensor, y: Tensor) -> None:
        """Add the rows' adapters to the outputs of a map.

        Args:
            number: of the map.
            x: [rows, inputs]
            y: [rows, outputs], changed in place.
        """
        for adapter, rows in self._rows:
            for part in adapter[number]:
                outputs = slice(part.first, part.first + part.b.shape[0])
                for some in split(rows, 1) if self.single_rows else (rows,):
                    wide = torch.promote_types(x.dtype, torch.float32)
                    low = linear(x[some].to(wide), part.a.to(wide)) * part.scale
                    delta = linear(low, part.b.to(wide))
                    y[some, outputs] = (y[some, outputs].to(wide) + delta).to(y.dtype)

    def _group(self) -> None:
        self._rows = []
        if self._owners is None:
            return
        for number, adapter in enumerate(self._adapters):
            rows = (self._owners == number).nonzero().flatten()
            if rows.numel():
                self._rows.append((adapter, rows))


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
