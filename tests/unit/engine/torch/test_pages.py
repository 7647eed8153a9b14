"""The layout of batches over pages."""

import time
from collections.abc import Callable

import torch

from baton.engine.native.kernels import NativeKernels
from baton.engine.torch.pages import PagedKv, Query

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
