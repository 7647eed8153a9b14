"""Operations of a layer: plain torch, the reference, or compiled operators."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, split
from torch.nn.functional import gelu, rms_norm, silu

from baton.engine.checkpoint.model_options import Activation
from baton.engine.sampling.masks import Words, mask_logits
from baton.engine.torch.attention import PLAIN_SCORES, AttentionStep, KvPool, ScoreOptions
from baton.engine.torch.linear import Linear, make_linear
from baton.engine.torch.lora.product import LowRankProduct
from baton.engine.torch.rope import rotate

_STEEPNESS, _MOST = 1.702, 7.0
"""Of `clamped_swish`: the gate's factor in its sigmoid, and the bound of gates and values."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Parameters with which queries and keys are made from a layer's projections."""

    layer: int
    """Number of the layer among those of its group."""
    rotation: tuple[Tensor, Tensor]
    """Cosines and sines, each [tokens, 1, head_size / 2]."""
    q_norm: Tensor | None
    k_norm: Tensor | None
    epsilon: float
    scores: ScoreOptions = PLAIN_SCORES


class Kernels(ABC):
    """One implementation of a layer's operations. Stateless."""

    grouped: bool
    """Whether `attend` needs `AttentionStep.groups`."""
    block_format: str
    """Name of the order of values in a block: KV of one format is invalid in another."""
    deterministic: bool
    """Whether the bits of a token's values depend only on earlier tokens: neither on other work in
    the same step, nor on how a prompt is cut.
    """

    own_threads: bool = False
    """Whether they compute on separate threads, and need none of torch's in addition."""

    @property
    @abstractmethod
    def arithmetic(self) -> str:
        """Return a name for what the bits of sums depend on, if they are deterministic."""

    @abstractmethod
    def pool_shape(self, block_tokens: int, kv_heads: int, head_size: int) -> tuple[int, ...]:
        """Return the shape of a layer's K, or V, of a block."""

    @abstractmethod
    def clear_end(self, kv: KvPool, page: int, kept_tokens: int) -> None:
        """Zero a page except for the given number of leading tokens."""

    @abstractmethod
    def make_linear(self, weight: Tensor, bias: Tensor | None) -> Linear:
        """Return a linear map of a weight [out, in], whose layout may be changed, and a bias."""

    @abstractmethod
    def add_norm(
        self, hidden: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float
    ) -> Tensor:
        """Add delta to hidden in place; return hidden / rms(hidden) · weight: [tokens, size]."""

    @abstractmethod
    def gate(self, both: Tensor, activation: Activation = "silu") -> Tensor:
        """Return the activation of the first half times the second.

        [tokens, 2 · size] → [tokens, size]
        """

    @abstractmethod
    def attend(self, kv: KvPool, step: AttentionStep, heads: Heads, qkv: Tensor) -> Tensor:
        """Write the batch's KV and return its attention.

        Args:
            kv: the pages of the layer's group.
            step: the batch.
            heads: the layer, and how its queries and keys are made.
            qkv: [tokens, (heads + 2 · kv_heads) · head_size], as projected; overwritten.

        Returns:
            [tokens, heads · head_size]
        """

    def low_rank(self) -> LowRankProduct:
        """Return what adds adapters to the outputs of linear maps."""
        return LowRankProduct(single_rows=self.deterministic)

    @abstractmethod
    def mask_logits(self, logits: Tensor, rows: Sequence[int], words: Words) -> None:
        """Mask out tokens in rows of logits, in place, as of `sampling.masks`."""


class PlainKernels(Kernels):
    """Kernels in plain torch, for any device and dtype."""

    grouped = True
    block_format = "torch/1"
    deterministic = False

    @property
    def arithmetic(self) -> str:
        return ""

    def pool_shape(self, block_tokens: int, kv_heads: int, head_size: int) -> tuple[int, ...]:
        return (block_tokens, kv_heads, head_size)

    def clear_end(self, kv: KvPool, page: int, kept_tokens: int) -> None:
        kv.pool[page, :, :, kept_tokens:] = 0

    def make_linear(self, weight: Tensor, bias: Tensor | None) -> Linear:
        return make_linear(weight, bias)

    def add_norm(
        self, hidden: Tensor, delta: Tensor | None, weight: Tensor, epsilon: float
    ) -> Tensor:
        if delta is not None:
            hidden += delta
        return rms_norm(hidden, weight.shape, weight, epsilon)

    def gate(self, both: Tensor, activation: Activation = "silu") -> Tensor:
        gates, values = both.chunk(2, dim=-1)
        if activation == "gelu_tanh":
            return gelu(gates, approximate="tanh") * values
        if activation == "clamped_swish":
            gates, values = gates.clamp(max=_MOST), values.clamp(-_MOST, _MOST) + 1
            return gates * (_STEEPNESS * gates).sigmoid() * values
        return silu(gates) * values

    def attend(self, kv: KvPool, step: AttentionStep, heads: Heads, qkv: Tensor) -> Tensor:
        q, k, v = rotated(kv, heads, qkv)
        return kv.attend(heads.layer, step, q, k, v, heads.scores)

    def mask_logits(self, logits: Tensor, rows: Sequence[int], words: Words) -> None:
        mask_logits(logits, rows, words)


def rotated(kv: KvPool, heads: Heads, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, [tokens, heads or kv_heads, head_size], ready to attend.

    Args:
        kv: the pages.
        heads: how queries and keys are made.
        qkv: [tokens, (heads + 2 · kv_heads) · head_size], as projected.
    """
    sizes = [kv.heads, kv.kv_heads, kv.kv_heads]
    q, k, v = split(qkv.view(qkv.shape[0], -1, kv.head_size), sizes, dim=1)
    if heads.q_norm is not None:
        q = rms_norm(q, heads.q_norm.shape, heads.q_norm, heads.epsilon)
    if heads.k_norm is not None:
        k = rms_norm(k, heads.k_norm.shape, heads.k_norm, heads.epsilon)
    return rotate(q, *heads.rotation), rotate(k, *heads.rotation), v
