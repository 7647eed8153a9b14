"""Layout of a batch's KV in pages: queries in groups, and the step for the kernels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.attention import AttentionGroup, AttentionStep, KvPool
from baton.engine.torch.kernels import Kernels, PlainKernels

_SMALL_BLOCKS = 8
"""Sequences up to this many blocks share a group regardless of their lengths."""
_LEAST_FILL = 0.7
"""For longer ones, the shortest of a group has at least this share of the longest."""
_GROUP_BYTES = {"cpu": 2 * 1024 * 1024, "cuda": 256 * 1024 * 1024}
"""Maximum bytes that a group of several sequences gathers per layer. On a CPU they are read again
from the cache, which makes decoding of many long sequences half as fast again.
"""
_MASK_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a chunk's mask; at least a block of rows. Of 512 tokens that attend to 131,072
with eight heads per KV head it would be 2 GiB."""


@dataclass(frozen=True, slots=True)
class Query:
    """Positions of one sequence whose KV is computed and attended to in one step."""

    pages: Sequence[int]
    """The sequence's pages, at least up to `end`. Those behind the window may be gone."""
    start: int
    end: int
    """Position after the last one."""
    num_computed_tokens: int
    """KV of positions below this is already in the pages and is not written."""

    def blocks(self, block_tokens: int) -> int:
        """Return the number of blocks that its context spans."""
        return -(-self.end // block_tokens)

    def first_block(self, block_tokens: int, window: int) -> int:
        """Return the first block that any of the positions sees; a window of 0 is the context."""
        return max(0, self.start + 1 - window) // block_tokens if window else 0


class PagedKv(KvPool):
    """The pool of a group's KV pages, and the layout of batches in it.

    Owned by a runner, on its thread.
    """

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
        window: int = 0,
    ) -> None:
        """Allocate memory for layers of this shape; kernels are the plain ones unless given.

        `window` is that of these layers, as of `ScoreOptions`.
        """
        self.window = window
        self.kernels = PlainKernels() if kernels is None else kernels
        shape = self.kernels.pool_shape(block_tokens, kv_heads, head_size)
        self.scratch_page = pages
        """An additional page, to which values that are not kept are written."""
        super().__init__(
            pages + 1, layers, shape, block_tokens, heads, kv_heads, head_size, dtype, device
        )
        self._group_blocks = _GROUP_BYTES[device.type] // (
            2 * self._blocks.shape[1] * dtype.itemsize
        )

    def group(self, queries: Sequence[Query]) -> list[list[int]]:
        """Group queries, by index: single tokens with others of similar length, chunks alone."""
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
        """Lay out a batch whose tokens are ordered by group, then by query."""
        device = self.pool.device
        size = self.block_tokens
        positions: list[int] = []
        slots: list[int] = []
        spans: list[tuple[int, int, int]] = []
        planned: list[AttentionGroup] = []
        for group in groups:
            first = len(positions)
            for query in group:
                spans.append((len(positions), query.end - query.start, query.start))
                positions.extend(range(query.start, query.end))
                for position in range(query.start, query.end):
                    kept = position >= query.num_computed_tokens
                    page = query.pages[position // size] if kept else self.scratch_page
                    slots.append(page * self.layers * 2 * size + position % size)
            if not self.kernels.grouped:
                continue
            if len(group) > 1:
                planned.append(self._streams(group, first))
            elif self.window:
                planned.extend(self._windowed_chunk(group[0], first))
            else:
                planned.extend(self._chunk(group[0], first))
        steps = torch.arange(self.layers, device=device).unsqueeze(1) * (2 * size)
        keys = torch.tensor(slots, device=device) + steps
        return AttentionStep(
            positions=torch.tensor(positions, device=device),
            slots=torch.cat((keys, keys + size), dim=1),
            spans=torch.tensor(spans, device=device),
            table=self._table([query for group in groups for query in group]),
            groups=tuple(planned),
        )

    def clear(self, pages: Sequence[int], kept_tokens: int = 0) -> None:
        """Zero pages; the first one keeps the given number of leading tokens."""
        if kept_tokens and pages:
            self.kernels.clear_end(self, pages[0], kept_tokens)
            pages = pages[1:]
        if pages:
            self.pool[torch.tensor(pages, device=self.pool.device)] = 0

    def _chunk(self, query: Query, first: int) -> Iterator[AttentionGroup]:
        """Yield the groups of one sequence, the last rows first.

        They share the mask of the last one: the others see as many fewer keys as they are earlier.
        """
        size, heads = self.block_tokens, self._heads_per_kv_head
        columns = torch.arange(query.blocks(size) * size, device=self.pool.device)
        row_bytes = heads * len(columns) * self.pool.dtype.itemsize
        # Whole blocks, so that a group's keys are fewer by as many as its rows are earlier.
        most = max(1, _MASK_BYTES // (row_bytes * size)) * size
        count = min(most, query.end - query.start)
        rows = torch.arange(query.end - count, query.end, device=self.pool.device)
        # Rows of the query matrix: all tokens of a group's first head, then of the next.
        mask = self._mask((columns > rows.unsqueeze(1)).expand(heads, -1, -1))
        end = query.end
        while end > query.start:
            begin = max(query.start, end - count)
            part = mask[:, count - (end - begin) :, query.end - end :]
            yield AttentionGroup(
                first=first + begin - query.start,
                last=first + end - query.start,
                sequences=1,
                blocks=self._block_rows([replace(query, start=begin, end=end)]),
                mask=part.reshape(1, 1, -1, part.shape[-1]),
            )
            end = begin

    def _windowed_chunk(self, query: Query, first: int) -> Iterator[AttentionGroup]:
        """Yield the groups of one sequence whose tokens see a window, each with its own blocks."""
        size, heads, window = self.block_tokens, self._heads_per_kv_head, self.window
        most_keys = min(query.end, query.end - query.start + window) + 2 * size
        row_bytes = heads * most_keys * self.pool.dtype.itemsize
        count = max(1, _MASK_BYTES // (row_bytes * size)) * size
        for start in range(query.start, query.end, count):
            part = replace(query, start=start, end=min(start + count, query.end))
            begin = part.first_block(size, window)
            columns = torch.arange(begin * size, part.blocks(size) * size, device=self.pool.device)
            rows = torch.arange(part.start, part.end, device=self.pool.device).unsqueeze(1)
            mask = self._mask(((columns > rows) | (columns <= rows - window)).expand(heads, -1, -1))
            yield AttentionGroup(
                first=first + part.start - query.start,
                last=first + part.end - query.start,
                sequences=1,
                blocks=self._block_rows([part], [begin]),
                mask=mask.view(1, 1, -1, len(columns)),
            )

    def _streams(self, group: Sequence[Query], first: int) -> AttentionGroup:
        """Return the group of the single tokens of several sequences."""
        device, size, window = self.pool.device, self.block_tokens, self.window
        begins = [query.first_block(size, window) for query in group]
        spans = zip(begins, group, strict=True)
        blocks = max(query.blocks(size) - begin for begin, query in spans)
        columns = torch.arange(blocks * size, device=device)
        columns = columns + torch.tensor(begins, device=device).unsqueeze(1) * size
        ends = torch.tensor([query.end for query in group], device=device).unsqueeze(1)
        hidden = columns >= ends
        if window:
            hidden |= columns < ends - window
        hidden = hidden.view(len(group), 1, 1, -1)
        return AttentionGroup(
            first=first,
            last=first + len(group),
            sequences=len(group),
            blocks=self._block_rows(group, begins),
            mask=self._mask(hidden),
        )

    def _mask(self, hidden: Tensor) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self.pool.dtype, device=self.pool.device)
        return mask.masked_fill_(hidden, -torch.inf)

    def _block_rows(self, queries: Sequence[Query], begins: Sequence[int] = ()) -> Tensor:
        """Return the rows of the pool's blocks: [layers, 2 · queries · blocks]."""
        keys = self._table(queries, begins).flatten() * (2 * self.layers)
        layers = torch.arange(self.layers, device=self.pool.device).unsqueeze(1) * 2
        return torch.cat((keys + layers, keys + layers + 1), dim=1)

    def _table(self, queries: Sequence[Query], begins: Sequence[int] = ()) -> Tensor:
        """Return the pages, of each query from its block `begins` on: [queries, blocks]."""
        begins = begins or [0] * len(queries)
        ends = [query.blocks(self.block_tokens) for query in queries]
        counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
        # Not by way of lists: next to a context of 131,072 tokens, those of 32 streams took 48 ms.
        table = np.empty((len(queries), max(counts)), dtype=np.int64)
        for row, begin, count, query in zip(table, begins, counts, queries, strict=True):
            row[:count] = query.pages[begin : begin + count]
            # Of what no row sees, or that is padding, the entry is one of the sequence's own pages:
            # masked out, but never another's data.
            behind = query.first_block(self.block_tokens, self.window) - begin
            row[:behind] = row[behind]
            row[count:] = row[count - 1]
        return torch.from_numpy(table).to(self.pool.device)
