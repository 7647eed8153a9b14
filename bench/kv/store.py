"""Put and get rates of a store, compared with memcpy and other KV stores.

A store in its own process. Batches of 64 objects of one size are put (reserve, copy, digest,
commit; four batches in flight, as workers do, if they fit into half of the arena) and got (find,
copy, check), with digests on. For comparison, the same pieces are copied to and from shared memory
of the same size and nothing else is done; for several clients, by as many processes at the same
time. The best round counts for both: on a machine with other work, the median shows mostly that
work. Over gRPC the store takes turns with a bare stream of 1 MiB messages, with the same number of
bytes and of distinct messages in each round. `get` has four batches in flight and `get 1` one after
the other. Each size has its own store, which is full when measuring starts: every put evicts.

    python -m bench.kv.store [--rounds 10] [--clients 4] [--peers build/kv-peers] [--json FILE]
"""

import argparse
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from baton.cluster.etcd.local import free_port
from baton.process.allocator import keep_freed_memory
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.child import process
from bench.harness.cluster import store
from bench.harness.table import Table
from bench.kv import local, over_grpc, several
from bench.kv.memory import SharedMemory
from bench.kv.peers.run import NAMES, rates_of
from bench.kv.sizes import COUNT, MIB, SIZES

Results = dict[str, Any]


def own_store(options: argparse.Namespace) -> AbstractAsyncContextManager[str]:
    return store({"BATON_STORE_ARENA_BYTES": str(options.arena_mib * MIB)})


async def shared_memory(options: argparse.Namespace) -> Results:
    heads = ("memcpy in", "put", "put/memcpy", "memcpy out", "get", "get/memcpy")
    table = Table(("shared memory", "<14"), *((head, "9.2f") for head in heads))
    arena_bytes = options.arena_mib * MIB
    memory = SharedMemory(arena_bytes)
    results: Results = {}
    for name, size in sizes(options):
        async with own_store(options) as address:
            rates = await local.put_and_get(address, size, options.rounds, memory, arena_bytes)
        results[name] = rates
        table.row(name, *(rates[head] for head in heads))
    return results


async def grpc(options: argparse.Namespace) -> Results:
    heads = ("bare put", "put", "put/bare", "bare get", "get", "get/bare", "get 1", "get 1/bare")
    table = Table(("gRPC, median (best)", "<20"), *((head, "11") for head in heads))
    results: Results = {}
    port = str(free_port())
    async with process([sys.executable, "-m", "bench.kv.over_grpc", port]):
        for name, size in sizes(options):
            async with own_store(options) as address:
                bare = f"127.0.0.1:{port}"
                rates = await over_grpc.put_and_get(
                    address, bare, size, options.rounds, options.arena_mib * MIB
                )
            results[name] = rates
            table.row(name, *("{:.2f} ({:.2f})".format(*rates[head]) for head in heads))
    return results


async def lookups(options: argparse.Namespace) -> Results:
    table = Table(("lookups, 4,096 keys at a time", "<30"), ("M keys/s", "8.2f"))
    results: Results = {}
    async with own_store(options) as address:
        for transport in ("shm", "grpc"):
            results[transport] = await local.lookups(address, transport)
            table.row(transport, results[transport] / 1e6)
    return results


async def clients(options: argparse.Namespace) -> Results:
    counts, memory = sorted({1, options.clients}), options.arena_mib * MIB
    heads = [f"{what} {count}" for what in several.WORK for count in counts]
    table = Table(("clients", "<14"), *((head, "12.2f") for head in heads))
    results: Results = {}
    async with own_store(options) as address:
        for name, size in sizes(options):
            rates = [
                await several.together(address, count, size, options.seconds, memory)
                for count in counts
            ]
            results[name] = {"one": rates[0], "many": rates[-1]}
            table.row(name, *(each[what] for what in several.WORK for each in rates))
    return results


async def peers(options: argparse.Namespace) -> Results:
    found = {name: await rates_of(name, options.peers, options.rounds) for name in NAMES}
    heads = [f"{name} {what}" for name in NAMES for what in ("put", "get")]
    table = Table(("peers", "<14"), *((head, "12.2f") for head in heads))
    for name in SIZES:
        table.row(name, *(each[name][what] for each in found.values() for what in ("put", "get")))
    for name, each in found.items():
        print(f"{name}: {each['lookups']['rate'] / 1e6:.2f} M lookups/s")
    return found


def sizes(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return the requested sizes of objects, with their names."""
    return [(name, SIZES[name]) for name in options.sizes]


PARTS = {"shm": shared_memory, "grpc": grpc, "lookups": lookups, "clients": clients}


async def measure(options: argparse.Namespace) -> Results:
    logs.configure("bench", "bench", "error")
    keep_freed_memory()  # as every process of Baton does
    print(f"{COUNT} objects at a time, digests on, GB/s (best of {options.rounds} rounds)")
    results = {}
    for name in options.only or PARTS:
        print()
        results[name] = await PARTS[name](options)
        cli.write(options, results)
    if options.peers:
        print()
        results["peers"] = await peers(options)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="duration of clients' work; default: 1.5"
    )
    parser.add_argument(
        "--arena-mib", type=int, default=2048, help="arena of a store; default: 2048"
    )
    parser.add_argument("--peers", type=Path, help="where make bench-kv-peers installed them")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--only", choices=PARTS, action="append")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=10,
        smallest='--rounds 1 --clients 1 --sizes "64 KiB" --arena-mib 64 --seconds 0.1',
    )
