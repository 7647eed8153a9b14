"""The product of low rank: what adapters add to the outputs of a linear map, in plain torch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, split
from torch.nn.functional import linear

from baton.engine.torch.lora.matrices import PartMatrices, StackedMatrices


class LowRankProduct:
    """Adds adapters' matrices, for any device and dtype. Stateless.

    Args:
        single_rows: compute each row alone, so that its bits do not depend on the others.
    """

    def __init__(self, *, single_rows: bool = False) -> None:
        self._single_rows = single_rows

    def pack(self, parts: Sequence[PartMatrices]) -> Any:
        """Return an adapter's matrices for one map, in the form that `join` takes."""
        return parts

    def pack_stacked(self, parts: Sequence[StackedMatrices]) -> Sequence[Any]:
        """Return an adapter's matrices for each of several maps, as `pack` does for one."""
        maps = range(len(parts[0].a))
        return [self.pack([part.of_map(index) for part in parts]) for index in maps]

    def join(self, packed: Sequence[Any]) -> Any:
        """Return the matrices of a step's adapters for one map, in the form that `add` takes."""
        return packed

    def add(self, x: Tensor, y: Tensor, joined: Any, rows: Tensor, ends: Tensor) -> None:
        """Add the rows' adapters to the outputs of a map.

        Args:
            x: [rows, inputs]
            y: [rows, outputs], changed in place.
            joined: of the adapters.
            rows: those that have an adapter, in the order of adapters: int64.
            ends: of each adapter, the number of its rows and of all before it: int64.
        """
        first = 0
        for parts, end in zip(joined, ends.tolist(), strict=True):
            own = rows[first:end]
            for some in split(own, 1) if self._single_rows else (own,):
                for part in parts:
                    _add(x, y, part, some)
            first = end


def _add(x: Tensor, y: Tensor, part: PartMatrices, rows: Tensor) -> None:
    wide = torch.promote_types(x.dtype, torch.float32)
    outputs = slice(part.first, part.first + part.b.shape[0])
    low = linear(x[rows].to(wide), part.a.to(wide)) * part.scale
    y[rows, outputs] = (y[rows, outputs].to(wide) + linear(low, part.b.to(wide))).to(y.dtype)
