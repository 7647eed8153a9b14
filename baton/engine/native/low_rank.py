"""Adapters' products by the compiled operator, whose bits do not depend on other adapters."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from baton.engine.torch.lora.matrices import PartMatrices, StackedMatrices
from baton.engine.torch.lora.product import LowRankProduct


class _Packed(NamedTuple):
    """An adapter's matrices for one map."""

    a: Tensor
    """All A side by side, as `pack_low` returns them."""
    scales: Tensor
    """[lanes]"""
    b: tuple[Tensor, ...]
    """[rank, outputs] of each module."""
    places: tuple[tuple[int, int], ...]
    """Of each module its first lane and its first output."""


class _Joined(NamedTuple):
    """Matrices of several adapters for one map, as the operator takes them."""

    a: list[Tensor]
    scales: list[Tensor]
    b: list[Tensor]
    places: list[int]
    """Of each of `b` its adapter, its first lane and its first output."""


class NativeLowRank(LowRankProduct):
    """The operator `add_low`.

    Args:
        threads: as the operators take it.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._threads = threads

    def pack(self, parts: Sequence[PartMatrices]) -> _Packed:
        if not parts:
            nothing = torch.empty(0, 0)
            return _Packed(nothing, nothing, (), ())
        stacked = [
            StackedMatrices(part.first, part.a[None], part.b[None], part.scale) for part in parts
        ]
        (packed,) = self.pack_stacked(stacked)
        return packed

    def pack_stacked(self, parts: Sequence[StackedMatrices]) -> Sequence[_Packed]:
        maps, _, inputs = parts[0].a.shape
        # Side by side along the inputs, whose steps become rows: the operator takes all at once.
        a = torch.cat([part.a.transpose(0, 1).reshape(-1, maps * inputs) for part in parts])
        packed: Tensor = torch.ops.baton_native.pack_low(a)
        lanes = packed.shape[1]
        scales = torch.zeros(lanes, dtype=torch.promote_types(a.dtype, torch.float32))
        places, lane = [], 0
        for part in parts:
            rank = part.a.shape[1]
            places.append((lane, part.first))
            scales[lane : lane + rank] = part.scale
            lane += rank
        of_maps = packed.view(maps, -1, lanes).unbind()
        b = zip(*(part.b.transpose(1, 2).contiguous().unbind() for part in parts), strict=True)
        return [
            _Packed(low, scales, high, tuple(places)) for low, high in zip(of_maps, b, strict=True)
        ]

    def join(self, packed: Sequence[_Packed]) -> _Joined:
        joined = _Joined([], [], [], [])
        for adapter, one in enumerate(packed):
            joined.a.append(one.a)
            joined.scales.append(one.scales)
            joined.b.extend(one.b)
            for place in one.places:
                joined.places.extend((adapter, *place))
        return joined

    def add(self, x: Tensor, y: Tensor, joined: _Joined, rows: Tensor, ends: Tensor) -> None:
        torch.ops.baton_native.add_low(y, x.contiguous(), rows, ends, *joined, self._threads)
