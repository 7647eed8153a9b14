"""Attention over paged KV.

The pool is page-major, [pages, layers, 2, …] with K before V, so that one block is one run of
bytes; within K or V the order is the kernels'. The plain ones' is [block_tokens, kv_heads,
head_size]: per layer a group of sequences gathers its blocks into a workspace and runs one
scaled_dot_product_attention there. Query heads that share a KV head become rows of one query
matrix, so KV is never repeated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from baton.engine.torch.kernels import Kernels, PlainKernels

_SMALL_BLOCKS = 8
"""Sequences up to this long share a group whatever their lengths."""
_LEAST_FILL = 0.7
"""Above it, the shortest of a group is at least this share of the longest."""
_LINE_BYTES = 64
"""Of a CPU's cache. A vector that lies across two is read twice."""
_GROUP_BYTES = {"cpu": 2 * 1024 * 1024, "cuda": 256 * 1024 * 1024}
"""What a group of several sequences gathers per layer, at most. On a CPU it is read again out of
the cache, which makes decoding of many long sequences half as fast again."""


@dataclass(frozen=True, slots=True)
class Query:
    """Positions of one sequence whose KV is computed and attended in one step."""

    pages: Sequence[int]
    """The sequence's pages, at least up to `end`."""
    start: int
    end: int
    """After the last position."""
    num_computed_tokens: int
    """KV of positions below this is in the pages already and is not written."""

    def blocks(self, block_tokens: int) -> int:
        """Return how many blocks its context spans."""
        return -(-self.end // block_tokens)


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Sequences whose attention is one call. Their tokens lie side by side in the batch."""

    first: int
    last: int
    """The tokens' range in the batch, end exclusive."""
    sequences: int
    blocks: Tensor
    """[layers, 2 · sequences · blocks]: rows of the pool's blocks to gather, K's before V's."""
    mask: Tensor
    """[sequences, 1, query rows or 1, tokens]: 0, or -inf where a key is hidden."""


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """Where the KV of one batch goes, and what it attends to."""

    positions: Tensor
    """[tokens]"""
    slots: Tensor
    """[layers, 2 · tokens]: rows of the pool's tokens to write, K's before V's."""
    spans: Tensor
    """[sequences, 3]: a sequence's first token in the batch, how many, and the first's position."""
    table: Tensor
    """[sequences, blocks]: pages, beyond a sequence's end its last one."""
    groups: tuple[AttentionGroup, ...]
    """Empty for kernels that do without."""


class PagedKv:
    """The pool of KV pages, and attention over it. Owned by a runner, on the engine's thread."""

    def __init__(
        self,
        pages: int,
        layers: int,
        block_tokens: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: Kernels | None = None,
    ) -> None:
        """Take memory for a model of this shape; kernels are the plain ones unless given."""
        self.kernels = PlainKernels() if kernels is None else kernels
        self.block_tokens = block_tokens
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_size = head_size
        self.scratch_page = pages
        """One page more than asked for: what is not to be kept is written there."""
        shape = self.kernels.pool_shape(block_tokens, kv_heads, head_size)
        self.pool = _zeros((pages + 1, layers, 2, *shape), dtype, device)
        self._blocks = self.pool.view(-1, block_tokens * kv_heads * head_size)
        self._slots = self.pool.view(-1, kv_heads * head_size)
        self._layers = layers
        self._heads_per_kv_head = heads // kv_heads
        self._group_blocks = _GROUP_BYTES[device.type] // (
            2 * self._blocks.shape[1] * dtype.itemsize
        )
        self._workspace = torch.empty(0, dtype=dtype, device=device)

    def group(self, queries: Sequence[Query]) -> list[list[int]]:
        """Group queries, by index: single tokens with others of like length, chunks each alone."""
        if not self.kernels.grouped:
            return [[i] for i in range(len(queries))]
        size = self.block_tokens
        groups = [[i] for i, query in enumerate(queries) if query.end - query.start > 1]
        single = [i for i, query in enumerate(queries) if query.end - query.start == 1]
        single.sort(key=lambda i: -queries[i].blocks(size))
        longest = 0
        for i in single:
            blocks = queries[i].blocks(size)
            alike = longest <= _SMALL_BLOCKS or blocks >= _LEAST_FILL * longest
            if longest and alike and (len(groups[-1]) + 1) * longest <= self._group_blocks:
                groups[-1].append(i)
            else:
                longest = blocks
                groups.append([i])
        return groups

    def plan(self, groups: Sequence[Sequence[Query]]) -> AttentionStep:
        """Lay out a batch whose tokens come group by group, query by query."""
        device = self.pool.device
        size = self.block_tokens
        positions: list[int] = []
        slots: list[int] = []
        spans: list[tuple[int, int, int]] = []
        planned = []
        for group in groups:
            first = len(positions)
            for query in group:
                spans.append((len(positions), query.end - query.start, query.start))
                positions.extend(range(query.start, query.end))
                for position in range(query.start, query.end):
                    kept = position >= query.num_computed_tokens
                    page = query.pages[position // size] if kept else self.scratch_page
                    slots.append(page * self._layers * 2 * size + position % size)
            if self.kernels.grouped:
                planned.append(self._group(group, first, len(positions)))
        steps = torch.arange(self._layers, device=device).unsqueeze(1) * (2 * size)
        keys = torch.tensor(slots, device=device) + steps
        return AttentionStep(
            positions=torch.tensor(positions, device=device),
            slots=torch.cat((keys, keys + size), dim=1),
            spans=torch.tensor(spans, device=device),
            table=self._table([query for group in groups for query in group]),
            groups=tuple(planned),
        )

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first keeps that many leading tokens."""
        if kept_tokens and pages:
            self.kernels.clear_end(self, pages[0], kept_tokens)
            pages = pages[1:]
        if pages:
            self.pool[torch.tensor(pages, device=self.pool.device)] = 0

    def _group(self, group: Sequence[Query], first: int, last: int) -> AttentionGroup:
        device = self.pool.device
        table = self._table(group)
        blocks = table.shape[1]
        keys = table.flatten() * (2 * self._layers)
        layers = torch.arange(self._layers, device=device).unsqueeze(1) * 2
        columns = torch.arange(blocks * self.block_tokens, device=device)
        if len(group) == 1:
            (query,) = group
            rows = torch.arange(query.start, query.end, device=device)
            hidden = columns > rows.unsqueeze(1)
            # Rows of the query matrix: all tokens of a group's first head, then of the next.
            hidden = hidden.repeat(self._heads_per_kv_head, 1).view(1, 1, -1, len(columns))
        else:
            ends = torch.tensor([query.end for query in group], device=device)
            hidden = (columns >= ends.unsqueeze(1)).view(len(group), 1, 1, -1)
        mask = torch.zeros(hidden.shape, dtype=self.pool.dtype, device=device)
        return AttentionGroup(
            first=first,
            last=last,
            sequences=len(group),
            blocks=torch.cat((keys + layers, keys + layers + 1), dim=1),
            mask=mask.masked_fill_(hidden, -torch.inf),
        )

    def _table(self, queries: Sequence[Query]) -> Tensor:
        """Return the pages: [queries, blocks of the longest]."""
        blocks = max(query.blocks(self.block_tokens) for query in queries)
        rows = []
        for query in queries:
            pages = query.pages[: query.blocks(self.block_tokens)]
            # The padding is a page of the sequence's own: hidden, but never another's garbage.
            rows.append([*pages, *[pages[-1]] * (blocks - len(pages))])
        return torch.tensor(rows, device=self.pool.device)

    def attend(self, layer: int, step: AttentionStep, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write K and V [tokens, kv_heads, head_size] of the batch; return the attention of q.

        Args:
            layer: which layer's KV.
            step: the batch.
            q: [tokens, heads, head_size]
            k: rotated.
            v: as projected.

        Returns:
            [tokens, heads · head_size]
        """
        tokens = q.shape[0]
        self.write(layer, step, k, v)
        out = torch.empty_like(q)
        for group in step.groups:
            keys, values = self._gather(group, layer)
            rows = self._rows(q[group.first : group.last], group.sequences)
            found = scaled_dot_product_attention(rows, keys, values, attn_mask=group.mask)
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
            # Fresh memory costs several times the copy itself: it is kept from step to step.
            self._workspace = self._workspace.new_empty(need)
        found = self._workspace[:need].view(rows.shape[0], -1)
        torch.index_select(self._blocks, 0, rows, out=found)
        shape = (2, group.sequences, -1, self.kv_heads, self.head_size)
        keys, values = found.view(shape).transpose(2, 3)
        return keys, values


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy leaves it to the system to zero memory when it is first used: what a small load never
    # touches is never taken.
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + _LINE_BYTES, dtype=np.uint8)
    first = -memory.ctypes.data % _LINE_BYTES
    return torch.from_numpy(memory[first : first + size]).view(dtype).view(shape)
