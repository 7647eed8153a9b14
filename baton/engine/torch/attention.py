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
    """Groups; empty for kernels that do not need them."""


class KvPool:
    """The memory of KV pages, and attention over it.

    Args:
        pages: number of pages to allocate.
        layers: of the model.
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
        self._layers = layers
        self._heads_per_kv_head = heads // kv_heads
        self._workspace = torch.empty(0, dtype=dtype, device=device)

    def attend(
        self, layer: int, step: AttentionStep, q: Tensor, k: Tensor, v: Tensor, scale: float
    ) -> Tensor:
        """Write K and V [tokens, kv_heads, head_size] of the batch; return the attention of q.

        Args:
            layer: which layer's KV.
            step: the batch.
            q: [tokens, heads, head_size]
            k: rotated.
            v: as projected.
            scale: factor of scores.

        Returns:
            [tokens, heads · head_size]
        """
        tokens = q.shape[0]
        self.write(layer, step, k, v)
        out = torch.empty_like(q)
        for group in step.groups:
            keys, values = self._gather(group, layer)
            rows = self._rows(q[group.first : group.last], group.sequences)
            found = scaled_dot_product_attention(
                rows, keys, values, attn_mask=group.mask, scale=scale
            )
            shape = (group.sequences, self.kv_heads, self._heads_per_kv_head, -1, self.head_size)
            out[group.first : group.last] = (
                found.view(shape).permute(0, 3, 1, 2, 4).reshape(-1, *q.shape[1:])
            )
        return out.view(tokens, -1)

    def write(self, layer: int, step: AttentionStep, k: Tensor, v: Tensor) -> None:
        """Write K and V [tokens, kv_heads, head_size] of the batch, in the plain kernels' order."""
        self._slots[step.slots[layer]] = torch.cat((k, v)).view(2 * k.shape[0], -1)

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
