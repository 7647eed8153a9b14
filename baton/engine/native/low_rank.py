"""Adapters' products by the compiled operator, whose bits do not depend on other adapters."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from baton.engine.torch.lora.matrices import PartMatrices
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
        a = torch.cat([part.a for part in parts])
        packed: Tensor = torch.ops.baton_native.pack_low(a)
        scales = torch.zeros(packed.shape[1], dtype=torch.promote_types(a.dtype, torch.float32))
        places, lane = [], 0
        for part in parts:
            places.append((lane, part.first))
            scales[lane : lane + len(part.a)] = part.scale
            lane += len(part.a)
        return _Packed(
            packed, scales, tuple(part.b.T.contiguous() for part in parts), tuple(places)
        )

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
