"""The layout of batches over pages."""

import time
from collections.abc import Callable

import pytest
import torch

from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.attention import ScoreOptions
from baton.engine.torch.kv import pages
from baton.engine.torch.kv.pages import PagedKv, Query

CPU = torch.device("cpu")
LONG_TOKENS = 131_072
STREAMS = 31


class Ungrouped(NativeKernels):
    """The layout of the compiled operators, without them."""

    def __init__(self) -> None:
        pass


def paged(block: int = 16) -> PagedKv:
    return PagedKv(8, 2, block, 2, 1, 16, torch.float32, CPU, Ungrouped())


def decode(context: int) -> Query:
    """The step of a stream over so many tokens, whose pages repeat."""
    pages = [block % 8 for block in range(-(-context // 16))]
    return Query(pages, context - 1, context, context - 1)


def fastest(run: Callable[[], object]) -> float:
    """CPU seconds, of the best of ten: other work on the machine only makes some slower."""
    seconds = []
    for _ in range(10):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return min(seconds)


def test_the_table_has_each_sequences_pages_and_then_its_last_one() -> None:
    queries = [Query([3, 1, 4, 5], 33, 34, 33), Query([2, 6], 0, 7, 0), Query([7] * 5, 64, 80, 64)]
    table = paged().plan([[query] for query in queries]).table
    assert table.tolist() == [[3, 1, 4, 4, 4], [2, 2, 2, 2, 2], [7, 7, 7, 7, 7]]


def test_short_streams_cost_little_next_to_a_long_context() -> None:
    kv, long, short = paged(), [decode(LONG_TOKENS)], [[decode(48)]] * STREAMS
    alone = fastest(lambda: kv.plan([long]))
    together = fastest(lambda: kv.plan([long, *short]))
    assert together < 8 * alone  # it was 33 times as much with a row of Python numbers for each


def test_a_chunk_of_a_long_context_needs_little_memory() -> None:
    kv = PagedKv(8, 2, 16, 8, 1, 16, torch.float32, CPU)
    chunk = Query([block % 8 for block in range(LONG_TOKENS // 16)], 130_000, 130_512, 130_000)
    groups = kv.plan([[chunk]]).groups
    assert sum(group.last - group.first for group in groups) == 512
    memory = {group.mask.untyped_storage().data_ptr(): group.mask for group in groups}
    masks = sum(mask.untyped_storage().nbytes() for mask in memory.values())
    assert masks <= 2 * 2**26  # it was 2 GiB


@pytest.mark.parametrize("rows", [16, 32, 48])
@pytest.mark.parametrize("start", [0, 5, 37])
def test_a_chunk_in_parts_attends_as_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, rows: int, start: int
) -> None:
    draw = torch.Generator().manual_seed(1)
    count, end = 83, start + 83
    q = torch.randn(count, 4, 16, generator=draw, dtype=torch.float64)
    k, v = (torch.randn(count, 2, 16, generator=draw, dtype=torch.float64) for _ in range(2))
    found = []
    for mask_bytes in (2**30, rows * 2 * -(-end // 16) * 16 * 8):
        monkeypatch.setattr(pages, "_MASK_BYTES", mask_bytes)
        kv = PagedKv(8, 1, 16, 4, 2, 16, torch.float64, CPU)
        kv.pool.copy_(torch.randn(kv.pool.shape, generator=torch.Generator().manual_seed(2)))
        step = kv.plan([[Query([7, 2, 5, 1, 0, 3, 6, 4], start, end, start)]])
        assert len(step.groups) == (1 if mask_bytes == 2**30 else -(-count // rows))
        found.append(kv.attend(0, step, q, k, v, ScoreOptions(0.25)))
    assert (found[0] - found[1]).abs().max().item() < 1e-12
