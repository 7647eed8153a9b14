"""Cost of the prefix index: bytes per block, matches and events per second.

Blocks come in chains of 64 of which holders have prefixes, as prompts of one prefix tree do. A
store and a few workers have blocks of each chain. Memory is the growth of the process; 64 bytes per
block are its key, which the compiled table does not keep. A match has 64 blocks in three runs, with
keys as objects and packed.

    python -m bench.router.index [--blocks 1000000] [--json FILE]
"""

import argparse
import gc
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from baton.kv.keys import pack
from bench.harness import cli
from bench.harness.table import Table
from services.router.prefix_index.blocks.build import library
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.native_table import NativeTable
from services.router.prefix_index.blocks.table import BlockTable
from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex

CHAIN = 64
MATCHES = 20_000
TABLES: dict[str, Callable[[], BlockTable]] = {
    "compiled": lambda: NativeTable(library().build()),
    "dict": DictTable,
}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _filled(
    table: BlockTable, blocks: int, holders: int, copies: int
) -> tuple[PrefixIndex, list[list[bytes]], int]:
    """Return an index, its chains, and the growth of the process in bytes for both."""
    draw = random.Random(1)
    gc.collect()
    before = _resident()
    chains = [[draw.randbytes(16) for _ in range(CHAIN)] for _ in range(blocks // CHAIN)]
    index = PrefixIndex(table=table)
    for number, chain in enumerate(chains):
        index.add_blocks(f"store-{number % (holders // 8)}", DRAM, chain)
        for copy in range(copies):
            worker = (number * 7 + copy) % holders
            index.add_blocks(f"worker-{worker}", ENGINE, chain[: 48 - 32 * (copy % 2)])
    gc.collect()
    return index, chains, _resident() - before


def _row(kind: str, blocks: int, holders: int, copies: int) -> dict[str, str | float]:
    """Measure one index in a process of its own: memory that another one freed would be reused."""
    index, chains, grown = _filled(TABLES[kind](), blocks, holders, copies)
    blocks = len(chains) * CHAIN
    some = random.Random(2).choices(chains, k=MATCHES)
    packed = [pack(chain) for chain in some]
    batches = [
        [key for chain in chains[first : first + 16] for key in chain]
        for first in range(0, len(chains), 16)
    ]
    times = [time.process_time()]
    for one in some:
        index.match(one)
    times.append(time.process_time())
    for message in packed:
        index.match_packed(message)
    times.append(time.process_time())
    for batch in batches:
        index.add_blocks("worker-1", ENGINE, batch)
    times.append(time.process_time())
    for batch in batches:
        index.remove_blocks("worker-1", ENGINE, batch)
    times.append(time.process_time())
    of_keys, of_packed, stored, evicted = (end - begin for begin, end in pairwise(times))
    return {
        "table": kind,
        "holders": holders,
        "copies": copies,
        # Lists of chains hold a pointer per block, which a router does not.
        "bytes_per_block": grown / blocks - 8,
        "matches_per_second": MATCHES / of_keys,
        "packed_matches_per_second": MATCHES / of_packed,
        "stored_per_second": blocks / stored,
        "evicted_per_second": blocks / evicted,
    }


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("table", "<8"),
        ("holders", "7,.0f"),
        ("copies", "6,.0f"),
        ("B a block", "9.0f"),
        ("match/s", "10,.0f"),
        ("packed/s", "10,.0f"),
        ("stored/s", "11,.0f"),
        ("evicted/s", "11,.0f"),
    )
    results = []
    library().build()
    for kind, (holders, copies) in product(TABLES, ((8, 2), (64, 2), (1_000, 2), (1_000, 100))):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            results.append(process.submit(_row, kind, options.blocks, holders, copies).result())
        table.row(*results[-1].values())
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blocks", type=int, default=1_000_000, help="distinct blocks")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--blocks 10000")
