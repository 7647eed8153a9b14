"""Transfer rate of objects from a store on another host, compared with bare NIXL.

Two stores that share no memory, and two bare NIXL agents that write pieces of the same sizes, laid
out in the same way, from one process to another. All of them use TCP over the loopback device.
Every round measures each way once, so that other work of the machine affects all of them alike.

With `--peers`, Redis and Mooncake Store are included: each holds the objects in its own process,
and another process gets them over TCP.

    python -m bench.kv.between_hosts [--rounds 9] [--peers build/kv-peers] [--json FILE]
"""

import argparse
import asyncio
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import KvStoreClient
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.child import Helper
from bench.harness.cluster import store
from bench.harness.table import Table
from bench.kv.batches import LAYOUT, attached, names
from bench.kv.nixl_alone import NixlAlone
from bench.kv.peers.run import NAMES, peer
from bench.kv.sizes import COUNT, MIB, SIZES

UCX = {"UCX_NET_DEVICES": "lo", "UCX_TLS": "tcp"}
ALONE = "NIXL alone"
WAYS = {
    # how stores move objects: transports, when digests are checked
    "NIXL, digests": ("nixl,grpc", "always"),
    "NIXL, no digests": ("nixl,grpc", "never"),
    "gRPC, digests": ("grpc", "always"),
}
GOALS = {"NIXL, digests": 0.65, "NIXL, no digests": 0.8}
Move = Callable[[int, int], Awaitable[float]]
"""(size, batches) → seconds to get this many batches of COUNT new objects."""
Rates = dict[str, dict[str, float]]


@dataclass
class StorePair:
    """Two stores and a client of each."""

    source: kvstore_pb2.KvSource
    writer: KvStoreClient
    reader: KvStoreClient

    async def put(self, keys: list[bytes], size: int) -> None:
        reservation = await self.writer.reserve(keys, LAYOUT, size)
        try:
            for view in reservation.slots.values():
                view[:] = secrets.token_bytes(64) * (size // 64)
            assert await reservation.commit(sorted(reservation.slots)) == len(keys)
        finally:
            await reservation.aclose()

    async def get(self, keys: list[bytes], size: int) -> None:
        """Return when the reader holds every object in its own host's shared memory."""
        received = 0
        async with aclosing(
            self.reader.fetch(keys, LAYOUT, size, [self.source], wait=30)
        ) as batches:
            async for batch in batches:
                received += len(batch)
        assert received == len(keys), f"{received} of {len(keys)} came"

    async def move(self, size: int, batches: int) -> float:
        """Put batches into one store and get all of them at once through the other."""
        wanted = names(batches)
        for keys in wanted:
            await self.put(keys, size)
        began = time.perf_counter()
        await asyncio.gather(*(self.get(keys, size) for keys in wanted))
        return time.perf_counter() - began


async def start_pair(
    stack: AsyncExitStack, directory: Path, transports: str, verify: str, memory_bytes: int
) -> StorePair:
    """Start two stores that share no memory, and connect a client to each."""
    addresses = []
    for name in ("source", "target"):
        own = directory / name
        own.mkdir(parents=True)
        settings = {
            **UCX,
            "BATON_INSTANCE_ID": f"{name}-{directory.name}",
            "BATON_STORE_ARENA_DIR": str(own),
            "BATON_STORE_ARENA_BYTES": str(memory_bytes),
            "BATON_STORE_PEER_TRANSPORTS": transports,
            "BATON_STORE_VERIFY": verify,
        }
        addresses.append(await stack.enter_async_context(store(settings)))
    writer, reader = [await stack.enter_async_context(attached(each)) for each in addresses]
    source = kvstore_pb2.KvSource(store_id=f"source-{directory.name}", address=addresses[0])
    return StorePair(source, writer, reader)


async def start_ways(
    stack: AsyncExitStack, directory: Path, options: argparse.Namespace
) -> dict[str, Move]:
    """Start everything to compare."""
    alone = NixlAlone(options.memory_mib * MIB)
    stack.callback(alone.close)

    async def write(size: int, batches: int) -> float:
        return alone.write(size, batches)

    ways: dict[str, Move] = {ALONE: write}
    for number, way in enumerate(options.ways):
        pair = await start_pair(
            stack, directory / str(number), *WAYS[way], options.memory_mib * MIB
        )
        ways[way] = pair.move
    for name in NAMES:
        if options.peers is None:
            break
        other = await stack.enter_async_context(peer(name, options.peers))

        async def get(size: int, batches: int, other: Helper = other) -> float:
            return float(await other.ask({"size": size, "batches": batches}))

        ways[name] = get
    return ways


async def compare(ways: dict[str, Move], rounds: int, size: int, batches: int) -> Rates:
    """Return GB/s of each way, and its share of bare NIXL, round by round."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 2):
        for way, move in ways.items():
            taken = await move(size, batches)
            if turn >= 2:  # connections and caches are warm
                seconds[way].append(taken)
    total = batches * COUNT * size / 1e9
    return {
        way: {
            "gb_per_s": total / statistics.median(taken),
            "best_gb_per_s": total / min(taken),
            "of_alone": statistics.median(
                one / own for one, own in zip(seconds[ALONE], taken, strict=True)
            ),
        }
        for way, taken in seconds.items()
    }


async def measure(options: argparse.Namespace) -> dict[str, Rates]:
    os.environ.update(UCX)
    logs.configure("bench", "bench", "error")
    results: dict[str, Rates] = {}
    with tempfile.TemporaryDirectory(prefix="baton-bench-", dir="/dev/shm") as directory:
        async with AsyncExitStack() as stack:
            ways = await start_ways(stack, Path(directory), options)
            await asyncio.sleep(options.touch)  # arenas are touched in the background
            print("GB/s, median (best), and the median of each round's share of NIXL alone")
            table = Table(("objects", "<17"), *((way, "20") for way in ways))
            for name in options.sizes:
                for batches in options.in_flight:
                    if batches * COUNT * SIZES[name] > options.memory_mib * MIB // 2:
                        continue
                    rates = await compare(ways, options.rounds, SIZES[name], batches)
                    row = f"{name} × {COUNT} × {batches}"
                    results[row] = rates
                    cells = (
                        f"{way['gb_per_s']:.2f} ({way['best_gb_per_s']:.2f}) {way['of_alone']:.2f}×"
                        for way in rates.values()
                    )
                    table.row(row, *cells)
    print("goals: " + ", ".join(f"{way} ≥ {goal}×" for way, goal in GOALS.items()))
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4], help="batches at once")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument(
        "--memory-mib", type=int, default=1024, help="memory of each; default: 1024"
    )
    parser.add_argument(
        "--touch", type=float, default=5.0, help="seconds before measuring; default: 5"
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--peers", type=Path, help="where make bench-kv-peers installed them")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=9,
        smallest='--rounds 1 --in-flight 1 --sizes "64 KiB" --ways "NIXL, digests" "gRPC, digests" '
        "--memory-mib 32 --touch 0",
    )
