"""How fast objects go into a store and come out, against memcpy and what else stores KV.

A store in a process of its own. Batches of 64 objects of one size are put (reserve, copy, digest,
commit; four batches in flight, as workers do, where they fit into half of the arena) and got (find,
copy, check), digests on. Beside each, the same pieces are copied to and from shared memory of the
same size with nothing else done; beside several clients, by as many processes at the same time.
The best round counts, for both: on a machine with other work a median tells how much it had.
Over gRPC the store takes turns with a bare stream of 1 MiB messages, as many bytes in each round
and as many different ones; `get` has four batches in flight and `get 1` one after the other.
Each size has a store of its own, which is full when measuring begins: every put evicts.

    python -m bench.kv.store [--rounds 5] [--clients 4] [--peers build/kv-peers] [--json FILE]
"""

import argparse
import asyncio
import json
import mmap
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import uvloop

from baton.cluster.local_etcd import free_port
from baton.kv.arena.file import populate
from baton.kv.client.client import KvStoreClient
from baton.process.allocator import keep_freed_memory
from baton.rpc.channels import OPTIONS
from baton.telemetry import logs

ROOT = Path(__file__).parents[2]
LAYOUT = b"L" * 16
COUNT = 64
ARENA_BYTES = 2 << 30
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB}
ROUND_BYTES = 1024 * MIB
"""Put, and then got, in one round: more than caches hold, and several batches of the largest."""
GRPC_ROUND_BYTES = 256 * MIB
"""As much over gRPC, or `LANES` batches where they are more."""
PART_BYTES = 8 * MIB
"""Over gRPC, committed while the next are copied, as workers do."""
LANES = 4
"""Batches in flight."""
MESSAGE_BYTES = MIB
Row = dict[str, float]


class Shared:
    """Shared memory like the arena's, mapped in this process, with nothing in it but copies."""

    def __init__(self, size: int) -> None:
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            file.truncate(size)
            self.write = memoryview(mmap.mmap(file.fileno(), size))
            self.read = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
        populate(self.write, write=True)
        populate(self.read, write=False)
        self._next = 0

    def places(self, count: int, size: int) -> list[int]:
        """Where the next objects go: all over the memory, as in an arena that is full."""
        if self._next + count * size > self.write.nbytes:
            self._next = 0
        begin, self._next = self._next, self._next + count * size
        return list(range(begin, begin + count * size, size))


def names(batches: int) -> list[list[bytes]]:
    """New keys for so many batches."""
    return [[secrets.token_bytes(16) for _ in range(COUNT)] for _ in range(batches)]


async def put_batch(client: KvStoreClient, keys: list[bytes], sources: list[memoryview]) -> None:
    size = sources[0].nbytes
    while True:
        reservation = await client.reserve(keys, LAYOUT, size)
        try:
            if reservation.exhausted:  # others hold half of the arena
                await asyncio.sleep(0.001)
                continue
            at_once = len(keys) if client.transport == "shm" else max(1, PART_BYTES // size)
            for begin in range(0, len(keys), at_once):
                part = range(begin, min(begin + at_once, len(keys)))
                for index in part:
                    reservation.write(index, sources[index])
                assert await reservation.commit(part) == len(part)
            return
        finally:
            await reservation.aclose()


async def put_all(
    client: KvStoreClient, batches: list[list[bytes]], sources: list[memoryview], clients: int = 1
) -> None:
    waiting = deque(batches)
    # All that is reserved has room in half of the arena, also where several clients put.
    batch_bytes = sum(source.nbytes for source in sources)
    lanes_that_fit = max(1, min(LANES, ARENA_BYTES // 2 // clients // batch_bytes))

    async def lane() -> None:
        while waiting:
            await put_batch(client, waiting.popleft(), sources)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(lanes_that_fit):
            lanes.create_task(lane())


async def get_batch(client: KvStoreClient, keys: list[bytes], targets: list[memoryview]) -> None:
    fetching = client.fetch(keys, LAYOUT, targets[0].nbytes)
    try:
        async for batch in fetching:
            for fetched in batch:
                assert fetched.copy_to(targets[fetched.index])
        assert not fetching.missing, len(fetching.missing)
    finally:
        await fetching.aclose()


def copy_in(shared: Shared, places: list[int], sources: list[memoryview]) -> None:
    size = sources[0].nbytes
    for place, source in zip(places, sources, strict=True):
        shared.write[place : place + size] = source


def copy_out(shared: Shared, places: list[int], targets: list[memoryview]) -> None:
    size = targets[0].nbytes
    for place, target in zip(places, targets, strict=True):
        target[:] = shared.read[place : place + size]


async def attached(address: str, transport: str, stack: list[KvStoreClient]) -> KvStoreClient:
    client = KvStoreClient(lambda: address, "bench", secrets.token_hex(4), transports=[transport])
    await client.__aenter__()
    stack.append(client)
    assert await client.wait_connected(30)
    while not client.memory_mapped:
        await asyncio.sleep(0.05)
    return client


async def through_store(address: str, size: int, rounds: int, shared: Shared) -> Row:
    """GB/s of the best round, and of the same copies alone."""
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    batches = max(1, ROUND_BYTES // (COUNT * size))
    total = batches * COUNT * size / 1e9
    seen: dict[str, list[float]] = {}
    clients: list[KvStoreClient] = []
    client = await attached(address, "shm", clients)
    try:
        for _ in range(-(-ARENA_BYTES // (batches * COUNT * size))):
            await put_all(client, names(batches), sources)
        for number in range(rounds + 1):
            keys = names(batches)
            places = [shared.places(COUNT, size) for _ in range(batches)]
            began = time.perf_counter()
            for place in places:
                copy_in(shared, place, sources)
            copied = time.perf_counter()
            await put_all(client, keys, sources)
            put = time.perf_counter()
            for place in places:
                copy_out(shared, place, targets)
            read = time.perf_counter()
            for batch in keys:
                await get_batch(client, batch, targets)
            got = time.perf_counter()
            if number:  # the first one warms up
                seen.setdefault("memcpy in", []).append(total / (copied - began))
                seen.setdefault("memcpy out", []).append(total / (read - put))
                seen.setdefault("put", []).append(total / (put - copied))
                seen.setdefault("get", []).append(total / (got - read))
    finally:
        for one in clients:
            await one.__aexit__(None, None, None)
    return {name: max(values) for name, values in seen.items()}


async def lookups(address: str, transport: str) -> float:
    """Keys per second, in batches of 4,096 of which half are held."""
    clients: list[KvStoreClient] = []
    client = await attached(address, transport, clients)
    try:
        held = [secrets.token_bytes(16) for _ in range(2048)]
        source = [memoryview(secrets.token_bytes(4096))] * 2048
        await put_batch(client, held, source)
        # The store is asked for what is not in its index: all held is the common case.
        rates = []
        for _ in range(30):
            began = time.perf_counter()
            answer = await client.lookup([*held, *held], LAYOUT)
            rates.append(len(answer) / (time.perf_counter() - began))
            assert sum(answer) == 4096
        return statistics.median(rates)
    finally:
        for one in clients:
            await one.__aexit__(None, None, None)


# Several clients

LOADS = ("memcpy in", "put", "memcpy out", "get")


async def load(address: str, size: int, seconds: float, count: int) -> None:
    """One of `count` clients: for each line of standard input it does one of `LOADS`."""
    loop = asyncio.get_running_loop()
    shared = Shared(ARENA_BYTES // count)
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    clients: list[KvStoreClient] = []
    client = await attached(address, "shm", clients)
    batches = max(2 * LANES, 64 * MIB // (COUNT * size))
    # What is got must still be there: put when nobody puts more, a quarter of the arena in all.
    kept = max(1, min(batches, ARENA_BYTES // 4 // count // (COUNT * size)))
    keys = names(batches)
    await put_all(client, keys, sources, count)
    try:
        for what in LOADS:
            if what == "get":
                keys = names(kept)
                await put_all(client, keys, sources, count)
            print("ready", flush=True)
            await loop.run_in_executor(None, sys.stdin.readline)
            done, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                if what == "put":
                    keys = names(batches)
                    await put_all(client, keys, sources, count)
                    done += batches * COUNT * size
                elif what == "memcpy in":
                    copy_in(shared, shared.places(COUNT, size), sources)
                    done += COUNT * size
                elif what == "memcpy out":
                    copy_out(shared, shared.places(COUNT, size), targets)
                    done += COUNT * size
                else:
                    for batch in keys:
                        await get_batch(client, batch, targets)
                        done += COUNT * size
            print(done / (time.perf_counter() - began) / 1e9, flush=True)
    finally:
        for one in clients:
            await one.__aexit__(None, None, None)


def several(address: str, count: int, size: int, seconds: float) -> Row:
    """GB/s of `count` clients together."""
    command = [
        sys.executable,
        "-m",
        "bench.kv.store",
        "--load",
        address,
        str(size),
        str(seconds),
        str(count),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        for _ in range(count)
    ]
    try:
        row = {}
        for what in LOADS:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline().strip() == "ready"
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            row[what] = sum(float(process.stdout.readline()) for process in processes)  # type: ignore[union-attr]
        return row
    finally:
        for process in processes:
            process.kill()
            process.wait()


# gRPC, beside bare byte streams


async def bare_server(port: int) -> None:
    """Sends and takes messages of random bytes, and does nothing with them."""
    kept: dict[int, list[bytes]] = {}

    async def down(requests, context):  # type: ignore[no-untyped-def]
        async for wanted in requests:
            size, count = map(int, wanted.split())
            if size not in kept:
                kept.clear()
                kept[size] = messages(size)
            for number in range(count):
                await context.write(kept[size][number % len(kept[size])])

    async def up(requests, context):  # type: ignore[no-untyped-def]
        async for data in requests:
            if len(data) < MESSAGE_BYTES:
                await context.write(b".")

    server = grpc.aio.server(options=OPTIONS)
    methods = {
        "Down": grpc.stream_stream_rpc_method_handler(down),
        "Up": grpc.stream_stream_rpc_method_handler(up),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def messages(size: int) -> list[bytes]:
    """What one batch has, in messages: as many bytes as are read for one."""
    return [secrets.token_bytes(MESSAGE_BYTES) for _ in range(COUNT * size // MESSAGE_BYTES)]


class Bare:
    """grpc.aio streams of messages of 1 MiB, one each way."""

    def __init__(self, channel: grpc.aio.Channel, size: int) -> None:
        self._up = channel.stream_stream("/Bare/Up")()
        self._down = channel.stream_stream("/Bare/Down")()
        self._size = size
        self._messages = messages(size)

    async def put(self, count: int) -> None:
        for number in range(count):
            await self._up.write(self._messages[number % len(self._messages)])
        await self._up.write(b"end")
        await self._up.read()

    async def get(self, count: int) -> None:
        await self._down.write(f"{self._size} {count}".encode())
        for _ in range(count):
            await self._down.read()

    def close(self) -> None:
        self._up.cancel()
        self._down.cancel()


async def get_all(
    client: KvStoreClient, batches: list[list[bytes]], targets: list[memoryview], lanes: int
) -> None:
    waiting = deque(batches)

    async def lane() -> None:
        while waiting:
            await get_batch(client, waiting.popleft(), targets)

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane())


async def through_grpc(
    address: str, port: int, size: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """GB/s of the store and of bare streams that take turns with it, and shares: median, best."""
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    batches = max(LANES, GRPC_ROUND_BYTES // (COUNT * size))
    total = batches * COUNT * size
    seen: dict[str, list[float]] = {}
    clients: list[KvStoreClient] = []
    local = await attached(address, "shm", clients)  # waits for the arena's memory, and fills it
    client = await attached(address, "grpc", clients)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
        bare = Bare(channel, size)
        try:
            await put_all(local, names(-(-ARENA_BYTES // (COUNT * size))), sources)
            for number in range(rounds + 1):
                keys = names(batches)
                for name, work in (
                    ("bare put", lambda: bare.put(total // MESSAGE_BYTES)),
                    ("put", lambda keys=keys: put_all(client, keys, sources)),
                    ("bare get", lambda: bare.get(total // MESSAGE_BYTES)),
                    ("get", lambda keys=keys: get_all(client, keys, targets, LANES)),
                    ("get 1", lambda keys=keys: get_all(client, keys, targets, 1)),
                ):
                    began = time.perf_counter()
                    await work()
                    if number:  # the first one warms up
                        rate = total / (time.perf_counter() - began) / 1e9
                        seen.setdefault(name, []).append(rate)
        finally:
            bare.close()
            for one in clients:
                await one.__aexit__(None, None, None)
    rows = {name: (statistics.median(rates), max(rates)) for name, rates in seen.items()}
    for name in ("put", "get", "get 1"):
        beside = rows["bare " + name.removesuffix(" 1")]
        rows[f"{name}/bare"] = (rows[name][0] / beside[0], rows[name][1] / beside[1])
    return rows


@contextmanager
def running(command: list[str], **env: str) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT), **env})
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def store(arena_bytes: int = ARENA_BYTES) -> Iterator[str]:
    """A store without a cluster: it serves all the same, and goes on looking for etcd."""
    port = free_port()
    with running(
        [sys.executable, "-m", "services.kvstore"],
        BATON_GRPC_PORT=str(port),
        BATON_ETCD_ENDPOINTS="127.0.0.1:1",
        BATON_TELEMETRY_LOG_LEVEL="error",
        BATON_KV_ARENA_BYTES=str(arena_bytes),
    ):
        yield f"127.0.0.1:{port}"


def peers(directory: Path, rounds: int) -> dict[str, dict[str, Row]]:
    """What other stores do with the same batches: rows by peer and size."""
    python = directory / "venv" / "bin" / "python"
    script = ROOT / "bench" / "kv" / "peer_stores.py"
    results = {}
    for name in ("redis", "mooncake"):
        command = [str(python), str(script), name, str(directory / "root"), str(rounds)]
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(map(str, directory.glob("root/**/x86_64-linux-gnu"))),
        }
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=400, check=False, env=env
        )
        if answer.returncode:
            print(f"{name} did not run:\n{answer.stderr[-2000:]}", file=sys.stderr)
            continue
        results[name] = json.loads(answer.stdout.strip().splitlines()[-1])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--peers", type=Path, help="where make bench-kv-peers installed them")
    parser.add_argument("--only", choices=["shm", "grpc", "clients", "lookups"], action="append")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--load", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logs.configure("bench", "bench", "error")
    keep_freed_memory()  # as every process of Baton does
    if options.load:
        address, size, seconds, count = options.load
        uvloop.run(load(address, int(size), float(seconds), int(count)))
        return
    if options.bare:
        uvloop.run(bare_server(options.bare))
        return
    # One loop for all: grpc.aio does not survive the end of a loop that others follow.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measure(runner, options)


def measure(runner: asyncio.Runner, options: argparse.Namespace) -> None:
    only = options.only or ["shm", "grpc", "lookups", "clients"]
    results: dict[str, object] = {}
    shared = Shared(ARENA_BYTES)
    print(f"{COUNT} objects at a time, digests on, GB/s (best of {options.rounds} rounds)\n")
    if "shm" in only:
        print(f"{'shared memory':14}" + "".join(f"{h:>11}" for h in _SHM_HEADS))
        for name, size in SIZES.items():
            with store() as address:
                row = runner.run(through_store(address, size, options.rounds, shared))
            row |= {
                "put/memcpy": row["put"] / row["memcpy in"],
                "get/memcpy": row["get"] / row["memcpy out"],
            }
            results[f"shm {name}"] = row
            print(f"{name:14}" + "".join(f"{row[h]:11.2f}" for h in _SHM_HEADS), flush=True)
    if "grpc" in only:
        port = free_port()
        print(f"\n{'gRPC, median (best)':19}" + "".join(f"{h:>14}" for h in _GRPC_HEADS))
        with running([sys.executable, "-m", "bench.kv.store", "--bare", str(port)]):
            for name, size in SIZES.items():
                with store() as address:
                    rows = runner.run(through_grpc(address, port, size, options.rounds))
                results[f"grpc {name}"] = rows
                print(f"{name:19}" + "".join(_pair(*rows[h]) for h in _GRPC_HEADS), flush=True)
    if "lookups" in only:
        with store() as address:
            for transport in ("shm", "grpc"):
                rate = runner.run(lookups(address, transport))
                results[f"lookups {transport}"] = rate
                print(f"\nlookups, 4,096 keys at a time, {transport}: {rate / 1e6:.2f} M keys/s")
    if "clients" in only:
        heads = [f"{what} {n}" for what in LOADS for n in (1, options.clients)]
        print(f"\n{'clients':8}" + "".join(f"{head:>13}" for head in heads))
        with store() as address:
            for name, size in SIZES.items():
                one = several(address, 1, size, 1.5)
                many = several(address, options.clients, size, 1.5)
                results[f"clients {name}"] = {"one": one, "many": many}
                rates = [row[what] for what in LOADS for row in (one, many)]
                print(f"{name:8}" + "".join(f"{rate:13.2f}" for rate in rates), flush=True)
    if options.peers:
        found = results["peers"] = peers(options.peers, options.rounds)
        print(
            f"\n{'peers':14}"
            + "".join(f"{name + w:>16}" for name in found for w in (" put", " get"))
        )
        for name in SIZES:
            print(
                f"{name:14}"
                + "".join(
                    f"{rows[name][w]:16.2f}" for rows in found.values() for w in ("put", "get")
                )
            )
        print(
            f"{'M lookups/s':14}"
            + "".join(f"{rows['lookups']['rate'] / 1e6:16.2f}{'':16}" for rows in found.values())
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _pair(median: float, best: float) -> str:
    return f"{f'{median:.2f} ({best:.2f})':>14}"


_GRPC_HEADS = ("bare put", "put", "put/bare", "bare get", "get", "get/bare", "get 1", "get 1/bare")
_SHM_HEADS = ("memcpy in", "put", "put/memcpy", "memcpy out", "get", "get/memcpy")

if __name__ == "__main__":
    main()
