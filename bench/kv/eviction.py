"""Hit rates of eviction orders on a trace of conversations.

    python -m bench.kv.eviction PATH/conversation_trace.jsonl [--sizes 1000 3000] [--json FILE]

The trace has one JSON object per line with `hash_ids`, one per block of the prompt; equal ids name
equal prefixes (the form of Mooncake's FAST'25 traces). Each request leases the blocks that exist,
as a reader does, and writes the rest. A hit is a block that exists and whose predecessors all
exist: only such blocks need not be computed. `flood`: between two requests, three times as many
blocks as the request has are written, each once; only hits of the trace count. With `shares`
another tenant writes them, without it the same one.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from baton.kv.objects import ObjectId
from bench.harness import cli
from bench.harness.table import Table
from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.cost_aware import CostAwareOrder
from services.kvstore.eviction.lru import Lru
from services.kvstore.eviction.policy import EvictionPolicy

ORDERS: dict[str, type[Order]] = {"lru": Lru, "cost-aware": CostAwareOrder}
DEFAULT_ORDER = "cost-aware"
Row = dict[str, Any]
LAYOUT = b"L" * 16
FLOOD = 3
"""Blocks of the flood per block of the trace."""
SIZES = (1_000, 3_000, 10_000, 30_000, 60_000)


class Cache:
    """Holds as many blocks as its capacity, of one size."""

    def __init__(self, capacity: int, order: str) -> None:
        self.policy = EvictionPolicy[Entry](capacity, ORDERS[order])
        self.capacity = capacity
        self.entries: dict[int, Entry] = {}
        self.evictions = 0

    def request(self, ids: Iterable[int], tenant: str) -> int:
        """Read existing blocks, write the rest; return how many leading blocks existed."""
        hits, leading, missing, held = 0, True, [], []
        for number in ids:
            entry = self.entries.get(number)
            if entry is None:
                leading = False
                missing.append(number)
                continue
            hits += leading
            self.policy.pin(entry)
            self.policy.use(entry)
            held.append(entry)
        for entry in held:
            self.policy.unpin(entry)
        for number in missing:
            self.write(number, tenant)
        return hits

    def write(self, number: int, tenant: str) -> None:
        if number in self.entries:
            return
        while len(self.entries) >= self.capacity:
            (victim,) = self.policy.choose(1, tenant, lambda entry: [entry], list)
            self.policy.remove(victim, evicted=True)
            self.policy.refund(victim.tenant, 1)
            del self.entries[int.from_bytes(victim.object_id.key, "big")]
            self.evictions += 1
        name = ObjectId(LAYOUT, number.to_bytes(16, "big"))
        entry = self.entries[number] = Entry(object_id=name, slot_bytes=1, tenant=tenant)
        self.policy.charge(tenant, 1)
        self.policy.add(entry)


def run(requests: list[list[int]], capacity: int, order: str, flood: str) -> Row:
    """Replay the trace; return the share of blocks hit and the time per block."""
    cache = Cache(capacity, order)
    hits = blocks = 0
    alien = 1 << 64
    began = time.process_time()
    for ids in requests:
        hits += cache.request(ids, "a")
        blocks += len(ids)
        if flood:
            for alien in range(alien + 1, alien + 1 + FLOOD * len(ids)):  # noqa: B020
                cache.write(alien, "b" if flood == "shares" else "a")
    micros = (time.process_time() - began) / blocks / (1 + FLOOD if flood else 1) * 1e6
    return {
        "order": order,
        "capacity_blocks": capacity,
        "flood": flood,
        "hit_rate": hits / blocks,
        "microseconds_per_block": micros,
        "evictions": cache.evictions,
    }


def measure(options: argparse.Namespace) -> list[Row]:
    lines = options.trace.read_text().splitlines()[: options.requests or None]
    requests = [json.loads(line)["hash_ids"] for line in lines]
    total, distinct = sum(map(len, requests)), len({n for ids in requests for n in ids})
    print(
        f"{len(requests)} requests, {total} blocks, {distinct} distinct: at most "
        f"{1 - distinct / total:.4f} can be hits; * the default"
    )
    sizes = [(f"{size} blocks", "10.4f") for size in options.sizes]
    table = Table(("order", "<26"), *sizes, ("µs/block", "8.1f"))
    rows: list[Row] = []
    for flood in ("", "no shares", "shares"):
        for order in options.orders:
            results = [run(requests, size, order, flood) for size in options.sizes]
            rows += results
            name = order + " *" * (order == DEFAULT_ORDER) + (f", flood, {flood}" if flood else "")
            slowest = max(result["microseconds_per_block"] for result in results)
            table.row(name, *(result["hit_rate"] for result in results), slowest)
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="capacities in blocks")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--requests", type=int, default=0, help="number of requests; 0: all")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="bench/router/smallest_trace.jsonl --sizes 100")
