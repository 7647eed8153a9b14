"""Kernels that call the compiled operators."""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from baton.engine.native.build import built_library
from baton.engine.torch.attention import AttentionStep, PagedKv
from baton.engine.torch.kernels import Heads, Kernels

_MAX_GROUP = 32
_HEAD_SIZE_STEP = 8


class NativeKernels(Kernels):
    """Kernels of the compiled library, for CPUs, in float32, float64 and bfloat16."""

    grouped = False

    def __init__(self, library: Path) -> None:
        """Load the library that `build` made.

        Raises:
            OSError: it cannot be loaded.
        """
        _load(library)
        self._ops = torch.ops.baton_native

    @staticmethod
    def can_run(heads: int, kv_heads: int, head_size: int) -> bool:
        """Return whether a model of this shape can be computed."""
        return heads // kv_heads <= _MAX_GROUP and head_size % _HEAD_SIZE_STEP == 0

    def add_norm(
        self, hidden: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float
    ) -> Tensor:
        found: Tensor = self._ops.add_norm(hidden, delta, weight, epsilon)
        return found

    def gate(self, both: Tensor) -> Tensor:
        found: Tensor = self._ops.gate(both)
        return found

    def attend(self, kv: PagedKv, step: AttentionStep, heads: Heads, qkv: Tensor) -> Tensor:
        found: Tensor = self._ops.attend(
            qkv,
            *heads.rotation,
            heads.q_norm,
            heads.k_norm,
            heads.epsilon,
            kv.pool,
            heads.layer,
            kv.heads,
            step.slots[heads.layer],
            step.spans,
            step.table,
        )
        return found


def built_kernels() -> NativeKernels | None:
    """Return the compiled kernels if they were built for a CPU like this."""
    path = built_library()
    return NativeKernels(path) if path else None


@cache
def _load(library: Path) -> None:
    torch.ops.load_library(library)  # type: ignore[no-untyped-call]
