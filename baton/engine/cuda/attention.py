"""Attention over pages with one arithmetic for every position.

A tile is a number of tokens of one sequence, with all query heads that share a KV head as its rows.
Keys come in blocks of 64 by position, from the first on. Blocks that a row does not attend to leave
it unchanged: their weights are zero, and the rescaling is by one. A row's value therefore depends
on its query and the KV before it, and not on what else is in its tile or in the batch. The softmax
is computed incrementally over the keys, as in FlashAttention (arXiv:2205.14135).
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from baton.engine.torch.attention import ScoreOptions

_ROWS = 64
_KEYS = 64
_LEAST_SIZE = 16
"""Minimum number of values of a head in one product."""


@triton.jit
def _attend(  # type: ignore[no-untyped-def]  # Triton's language
    q,
    pool,
    spans,
    table,
    found,
    sinks,
    scale,
    softcap,
    window,
    layer_offset,
    page_values,
    table_blocks,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    group_rows: tl.constexpr,
    size: tl.constexpr,
    size_columns: tl.constexpr,
    block: tl.constexpr,
    rows: tl.constexpr,
    step_keys: tl.constexpr,
    has_window: tl.constexpr,
    has_softcap: tl.constexpr,
    has_sinks: tl.constexpr,
):
    """Write one tile of [tokens, heads, size]."""
    sequence = tl.program_id(0)
    kv_head = tl.program_id(2)
    first_token = tl.load(spans + sequence * 3)
    count = tl.load(spans + sequence * 3 + 1)
    start = tl.load(spans + sequence * 3 + 2)
    tile_tokens: tl.constexpr = rows // group_rows
    tile = tl.program_id(1) * tile_tokens
    if tile >= count:
        return
    row = tl.arange(0, rows)
    token = tile + row // group_rows
    head = row % group_rows
    real = (token < count) & (head < group)
    position = start + token
    column = tl.arange(0, size_columns)
    inside = column < size
    place = ((first_token + token) * heads + kv_head * group + head) * size
    queries = tl.load(
        q + place[:, None] + column[None, :], mask=real[:, None] & inside[None, :], other=0.0
    )
    # A row that has seen no key has a number, so that what is hidden from it weighs nothing.
    highest = tl.full((rows,), -1e30, dtype=tl.float32)
    total = tl.zeros((rows,), dtype=tl.float32)
    if has_sinks:
        highest = tl.load(sinks + kv_head * group + head, mask=head < group, other=0.0)
        highest = highest.to(tl.float32)
        total += 1.0
    sums = tl.zeros((rows, size_columns), dtype=tl.float32)
    end = start + tl.minimum(tile + tile_tokens, count)
    begin = 0
    if has_window:
        begin = tl.maximum(start + tile - window + 1, 0) // step_keys * step_keys
    for at in range(begin, end, step_keys):
        key = at + tl.arange(0, step_keys)
        there = key < end
        page = tl.load(table + sequence * table_blocks + key // block, mask=there, other=0)
        line = page * page_values + layer_offset + ((key % block) * kv_heads + kv_head) * size
        keys = tl.load(
            pool + line[None, :] + column[:, None],
            mask=there[None, :] & inside[:, None],
            other=0.0,
        )
        scores = tl.dot(queries, keys, input_precision="ieee") * scale
        if has_softcap:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores = tl.where(key[None, :] <= position[:, None], scores, float("-inf"))
        if has_window:
            behind = key[None, :] + window <= position[:, None]
            scores = tl.where(behind, float("-inf"), scores)
        new = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(highest - new)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(
            pool + (line + block * kv_heads * size)[:, None] + column[None, :],
            mask=there[:, None] & inside[None, :],
            other=0.0,
        )
        sums = tl.dot(
            weights.to(values.dtype), values, sums * shrink[:, None], input_precision="ieee"
        )
        highest = new
    tl.store(
        found + place[:, None] + column[None, :],
        (sums / total[:, None]).to(found.dtype.element_ty),
        mask=real[:, None] & inside[None, :],
    )


def attend(
    q: Tensor,
    pool: Tensor,
    layer: int,
    spans: Tensor,
    table: Tensor,
    block_tokens: int,
    scores: ScoreOptions,
) -> Tensor:
    """Return the attention of queries over pages that already hold the batch's KV.

    Args:
        q: [tokens, heads, head_size], rotated.
        pool: [pages, layers, 2, block_tokens, kv_heads, head_size], K before V.
        layer: which layer's KV.
        spans: [sequences, 3]: a sequence's first token, number of tokens, and first position.
        table: [sequences, blocks]: pages.
        block_tokens: of a page.
        scores: how they become weights.

    Returns:
        [tokens, heads, head_size]
    """
    tokens, heads, size = q.shape
    kv_heads = pool.shape[4]
    group = heads // kv_heads
    group_rows = triton.next_power_of_2(group)
    if group_rows > _ROWS:
        raise ValueError(f"{group} query heads share a KV head: at most {_ROWS}")
    found = torch.empty_like(q)
    sequences = spans.shape[0]
    # The length of the longest chunk is known only on the device: assume the maximum.
    tiles = triton.cdiv(tokens - sequences + 1, _ROWS // group_rows)
    launch: Any = _attend[(sequences, tiles, kv_heads)]
    launch(
        q.contiguous(),
        pool,
        spans,
        table,
        found,
        q if scores.sinks is None else scores.sinks,
        scores.factor(size),
        scores.softcap,
        scores.window,
        layer * pool.stride(1),
        pool.stride(0),
        table.shape[1],
        heads=heads,
        kv_heads=kv_heads,
        group=group,
        group_rows=group_rows,
        size=size,
        size_columns=max(_LEAST_SIZE, triton.next_power_of_2(size)),
        block=block_tokens,
        rows=_ROWS,
        step_keys=_KEYS,
        has_window=scores.window > 0,
        has_softcap=scores.softcap > 0,
        has_sinks=scores.sinks is not None,
    )
    return found
