"""Kernels that call the compiled operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from baton.engine.checkpoint.model_options import Activation
from baton.engine.native.low_rank import NativeLowRank
from baton.engine.sampling.masks import MaskLogits, Words
from baton.engine.torch.attention import AttentionStep, KvPool
from baton.engine.torch.kernels import Heads, Kernels
from baton.engine.torch.linear import Linear, make_linear
from baton.engine.torch.lora.product import LowRankProduct

_MAX_GROUP = 32
_HEAD_SIZE_STEP = 8
_OF_TORCH = -1
"""As a number of threads: operators run on torch's threads."""
_STEP_VALUES = {torch.bfloat16: 2, torch.float32: 1, torch.float64: 1}
"""Number of values that a product processes together: they are adjacent in a page."""

_ACTIVATIONS: Mapping[Activation, int] = {"silu": 0, "gelu_tanh": 1, "clamped_swish": 2}
"""Numbers of activations in rows.h."""


@dataclass(frozen=True, slots=True)
class NativeLinear:
    """A linear map in bfloat16 with a fixed order of sums, regardless of the rest of the batch."""

    panels: Tensor
    """[out / 64, in / 2, 64] pairs of a weight's values: int32."""
    bias: Tensor | None
    """float32 [out]"""
    outputs: int
    threads: int
    """Number of the operators' own threads; 0: as many as torch has."""

    def __call__(self, x: Tensor, /) -> Tensor:
        found: Tensor = torch.ops.baton_native.linear(
            x, self.panels, self.bias, self.outputs, self.threads
        )
        return found


class NativeKernels(Kernels):
    """Kernels of the compiled library, for CPUs, in float32, float64 and bfloat16.

    A block holds per layer the K and then the V of each head, in the order in which they are
    multiplied: K as [head_size / P, block_tokens, P], V as [block_tokens / P, head_size, P], where
    P is 2 in bfloat16, else 1. Blocks are of a multiple of 16 tokens.
    """

    grouped = False
    block_format = "torch-native/1"

    def __init__(self, library: Path, *, deterministic: bool = False, threads: int = 0) -> None:
        """Load the library that `build` produced.

        Args:
            library: its path.
            deterministic: compute linear maps with the library too, in bfloat16, instead of oneDNN,
                whose order of sums depends on the number of rows. Then all operators run on
                separate threads. Otherwise they run on torch's, as the products do: torch's threads
                keep their cores for milliseconds after each operator.
            threads: number of separate threads; 0: as many as torch has.

        Raises:
            OSError: it cannot be loaded.
        """
        _load(library)
        self._ops = torch.ops.baton_native
        self.deterministic = self.own_threads = deterministic
        self._threads = threads if deterministic else _OF_TORCH

    def pool_shape(self, block_tokens: int, kv_heads: int, head_size: int) -> tuple[int, ...]:
        return (kv_heads, block_tokens * head_size)

    def clear_end(self, kv: KvPool, page: int, kept_tokens: int) -> None:
        values = _STEP_VALUES[kv.pool.dtype]
        keys, held = kv.pool[page].unbind(1)
        shape = (*keys.shape[:-1], kv.head_size // values, kv.block_tokens, values)
        keys.view(shape)[..., kept_tokens:, :] = 0
        steps = held.view(*held.shape[:-1], kv.block_tokens // values, kv.head_size, values)
        step, value = divmod(kept_tokens, values)
        if value:
            steps[..., step, :, value:] = 0
            step += 1
        steps[..., step:, :, :] = 0

    @property
    def arithmetic(self) -> str:
        """Return the instructions that compute sums in bfloat16, on which their bits depend."""
        name: str = self._ops.arithmetic()
        return name

    @staticmethod
    def can_run(heads: int, kv_heads: int, head_size: int) -> bool:
        """Return whether the library supports a model of this shape."""
        return heads // kv_heads <= _MAX_GROUP and head_size % _HEAD_SIZE_STEP == 0

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> Linear:
        if not self.deterministic or weight.dtype is not torch.bfloat16:
            return make_linear(weight, bias)
        panels: Tensor = self._ops.pack(weight.contiguous())
        return NativeLinear(
            panels, None if bias is None else bias.float(), weight.shape[0], self._threads
        )

    def add_norm(
        self, hidden: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float
    ) -> Tensor:
        found: Tensor = self._ops.add_norm(hidden, delta, weight, epsilon, self._threads)
        return found

    def gate(self, both: Tensor, activation: Activation = "silu") -> Tensor:
        found: Tensor = self._ops.gate(both, _ACTIVATIONS[activation], self._threads)
        return found

    def attend(self, kv: KvPool, step: AttentionStep, heads: Heads, qkv: Tensor) -> Tensor:
        found: Tensor = self._ops.attend(
            qkv,
            *heads.rotation,
            heads.q_norm,
            heads.k_norm,
            heads.epsilon,
            heads.scores.factor(kv.head_size),
            heads.scores.window,
            heads.scores.softcap,
            heads.scores.sinks,
            kv.pool,
            heads.layer,
            kv.heads,
            kv.block_tokens,
            step.slots[heads.layer],
            step.spans,
            step.table,
            self._threads,
        )
        return found

    def low_rank(self) -> LowRankProduct:
        return NativeLowRank(self._threads)

    def mask_logits(self, logits: Tensor, rows: Sequence[int], words: Words) -> None:
        _mask_logits(logits, rows, words, self._threads)


def load_mask_logits(library: Path) -> MaskLogits:
    """Return only this operator, for engines that compute the rest themselves.

    Raises:
        OSError: the library cannot be loaded.
    """
    _load(library)
    return _mask_logits


def _mask_logits(
    logits: Tensor, rows: Sequence[int], words: Words, threads: int = _OF_TORCH
) -> None:
    masks = torch.from_numpy(words.view(np.int32))
    torch.ops.baton_native.mask_logits(logits, torch.tensor(rows), masks, threads)


@cache
def _load(library: Path) -> None:
    torch.ops.load_library(library)  # type: ignore[no-untyped-call]
