"""Attention over paged KV.

The pool is page-major, [pages, layers, 2, …] with K before V, so that one block is one run of
bytes; within K or V the kernels define the order. That of the plain ones is [block_tokens,
kv_heads, head_size]: per layer a group of sequences gathers its blocks into a workspace and runs
one scaled_dot_product_attention there. Query heads that share a KV head become rows of one query
matrix, so KV is never repeated.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_LINE_BYTES = 64
"""Bytes of a CPU's cache line. A vector that spans two lines is read twice."""


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """How products of a layer's queries and keys become weights of values."""

    scale: float | None = None
    """Factor; None: 1 / √head_size."""
    window: int = 0
    """Number of last tokens that a token sees, itself included; 0: all."""
    softcap: float = 0.0
    """c of c · tanh(score / c), arXiv:2408.00118; 0: none."""
    sinks: Tensor | None = None
    """[heads]: scores of one more key each, whose value is zero (gpt-oss)."""

    def factor(self, head_size: int) -> float:
        """Return the factor of products."""
        return head_size**-0.5 if self.scale is None else self.scale


PLAIN_SCORES = ScoreOptions()
"""Of a model whose every token sees all before it."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Sequences whose attention is one call. Their tokens are adjacent in the batch."""

    first: int
    last: int
    """First and last token in the batch, end exclusive."""
    sequences: int
    blocks: Tensor
    """[layers, 2 · sequences · blocks]: rows of the pool's blocks to gather, K's before V's."""
    mask: Tensor
    """[sequences, 1, query rows or 1, tokens]: 0, or -inf where a key is hidden."""


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """Location of the KV of one batch, and the blocks to which it attends."""

    positions: Tensor
    """[tokens]"""
    slots: Tensor
    """[layers, 2 · tokens]: rows of the pool's tokens to write, K's before V's."""
    spans: Tensor
    """[sequences, 3]: a sequence's first token in the batch, token count, and first position."""
    table: Tensor
    """[sequences, blocks]: pages; beyond a sequence's end, its last one."""
    groups: tuple[AttentionGroup, ...]
    """Empty for kernels that do not need them."""


class KvPool:
    """The memory of a group's KV pages, and attention over it.

    Args:
        pages: number of pages to allocate.
        layers: of the group.
        block_shape: of a layer's K, or V, of a block, in the kernels' layout.
        block_tokens, heads, kv_heads, head_size: of the model.
        dtype, device: of the memory.
    """

    def __init__(
        self,
        pages: int,
        layers: int,
        block_shape: tuple[int, ...],
        block_tokens: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_tokens = block_tokens
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_size = head_size
        self.pool = _zeros((pages, layers, 2, *block_shape), dtype, device)
        self._blocks = self.pool.view(-1, block_tokens * kv_heads * head_size)
        self._slots = self.pool.view(-1, kv_heads * head_size)
        self.layers = layers
        self._heads_per_kv_head = heads // kv_heads
        self._workspace = torch.empty(0, dtype=dtype, device=device)

    def attend(
        self, layer: int, step: AttentionStep, q: Tensor, k: Tensor, v: Tensor, scores: ScoreOptions
    ) -> Tensor:
        """Write K and V [tokens, kv_heads, head_size] of the batch; return the attention of q.

        Args:
            layer: which of the group's layers.
            step: the batch.
            q: [tokens, heads, head_size]
            k: rotated.
            v: as projected.
            scores: how they become weights.

        Returns:
            [tokens, heads · head_size]
        """
        tokens = q.shape[0]
        self.write(layer, step, k, v)
        out = torch.empty_like(q)
        for group in step.groups:
            keys, values = self._gather(group, layer)
            rows = self._rows(q[group.first : group.last], group.sequences)
            found = self._weighted(rows, keys, values, group.mask, scores)
            shape = (group.sequences, self.kv_heads, self._heads_per_kv_head, -1, self.head_size)
            out[group.first : group.last] = (
                found.view(shape).permute(0, 3, 1, 2, 4).reshape(-1, *q.shape[1:])
            )
        return out.view(tokens, -1)

    def write(self, layer: int, step: AttentionStep, k: Tensor, v: Tensor) -> None:
        """Write K and V [tokens, kv_heads, head_size] of the batch, in the plain kernels' order."""
        self._slots[step.slots[layer]] = torch.cat((k, v)).view(2 * k.shape[0], -1)

    def _weighted(
        self, rows: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scores: ScoreOptions
    ) -> Tensor:
        """Return the weighted values of each row: [sequences, kv_heads, rows, head_size]."""
        scale = scores.factor(self.head_size)
        if not scores.softcap and scores.sinks is None:
            return scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scale)
        exact = torch.promote_types(rows.dtype, torch.float32)
        found = rows.to(exact) @ keys.to(exact).transpose(-1, -2) * scale
        if scores.softcap:
            found = scores.softcap * torch.tanh(found / scores.softcap)
        found = found + mask
        if scores.sinks is not None:
            tokens = found.shape[2] // self._heads_per_kv_head
            sinks = scores.sinks.repeat_interleave(tokens).view(1, self.kv_heads, -1, 1)
            found = torch.cat((found, sinks.expand(len(found), -1, -1, 1)), dim=-1)
        weights = found.softmax(-1)[..., : keys.shape[2]]
        return weights.to(values.dtype) @ values

    def _rows(self, q: Tensor, sequences: int) -> Tensor:
        """[sequences · n, heads, size] → [sequences, kv_heads, heads per kv head · n, size]"""
        shape = (sequences, -1, self.kv_heads, self._heads_per_kv_head, self.head_size)
        rows = q.view(shape).permute(0, 2, 3, 1, 4)
        return rows.reshape(sequences, self.kv_heads, -1, self.head_size)

    def _gather(self, group: AttentionGroup, layer: int) -> tuple[Tensor, Tensor]:
        """Return K and V of a group's sequences, each [sequences, kv_heads, tokens, head_size]."""
        rows = group.blocks[layer]
        need = rows.shape[0] * self._blocks.shape[1]
        if self._workspace.numel() < need:
            # Allocating memory costs several times the copy itself: it is kept from step to step.
            self._workspace = self._workspace.new_empty(need)
        found = self._workspace[:need].view(rows.shape[0], -1)
        torch.index_select(self._blocks, 0, rows, out=found)
        shape = (2, group.sequences, -1, self.kv_heads, self.head_size)
        keys, values = found.view(shape).transpose(2, 3)
        return keys, values


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # With numpy the system zeroes memory on first use: memory that a small load does not touch is
    # never allocated.
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + _LINE_BYTES, dtype=np.uint8)
    first = -memory.ctypes.data % _LINE_BYTES
    return torch.from_numpy(memory[first : first + size]).view(dtype).view(shape)
