"""How fast a store gets objects from a store on another host, against NIXL alone.

Two stores that share no memory, and two bare NIXL agents that write pieces of the same sizes, laid
out alike, from one process to another. All of them use TCP over the loopback device. Every round
does each way once, so that whatever else the machine does falls on all alike.

With `--peers` Redis and Mooncake Store are there too: each holds the objects in a process of its
own, and another one gets them over TCP.

    python -m bench.kv.between_hosts [--rounds 9] [--peers build/kv-peers] [--json FILE]
"""

import argparse
import asyncio
import ctypes
import json
import mmap
import multiprocessing
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from baton.cluster.local_etcd import free_port
from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import KvStoreClient
from baton.telemetry import logs
from services.kvstore.peers.transports.nixl.agent import LIBRARIES

ROOT = Path(__file__).parents[2]
LAYOUT = b"L" * 16
COUNT = 64
KIB = 1024
SIZES = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": 1024 * KIB, "4 MiB": 4096 * KIB}
ARENA_BYTES = 1 << 30
UCX = {"UCX_NET_DEVICES": "lo", "UCX_TLS": "tcp"}
RAW = "NIXL alone"


def bare_agent(name: str) -> tuple[Any, int, mmap.mmap]:
    """An agent with memory like an arena's: the agent, the memory's address, the memory."""
    library = __import__(next(name for name in LIBRARIES if _installed(name)))
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        os.truncate(file.fileno(), ARENA_BYTES)
        memory = mmap.mmap(file.fileno(), ARENA_BYTES)
    for at in range(0, ARENA_BYTES, mmap.PAGESIZE):
        memory[at] = 1
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    agent = library.nixl_agent(name, library.nixl_agent_config(enable_prog_thread=False))
    agent.register_memory([(address, ARENA_BYTES, 0, "")], "DRAM")
    return agent, address, memory


def _installed(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def raw_target(pipe: Connection) -> None:
    """The process that is written to: looks without a pause while it expects something."""
    agent, address, _memory = bare_agent("target")
    pipe.send((agent.get_agent_metadata(), address))
    while True:
        expected = pipe.recv()
        if not expected:
            return
        while expected:
            expected -= sum(len(told) for told in agent.get_new_notifs().values())
        pipe.send(True)


class RawPeer:
    """The process that writes."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=raw_target, args=(theirs,), daemon=True)
        self._process.start()
        self._agent, self._address, self._memory = bare_agent("source")
        metadata, self._remote = self._pipe.recv()
        self._name = self._agent.add_remote_agent(metadata)
        self._next = 0

    def write(self, size: int, batches: int) -> float:
        """Write `batches` times COUNT pieces; the seconds until the target was told of all.

        Like the stores it goes through all of its memory, and writes what was written just now.
        """
        lists = []
        for _ in range(batches):
            if self._next + COUNT * size > ARENA_BYTES:
                self._next = 0
            begin, self._next = self._next, self._next + COUNT * size
            for piece in range(begin, self._next, size):
                self._memory[piece : piece + size] = secrets.token_bytes(64) * (size // 64)
            at = np.arange(begin, self._next, size, dtype=np.uint64)
            lists.append(
                [
                    self._agent.get_xfer_descs(
                        np.stack(
                            [at + np.uint64(base), np.full_like(at, size), np.zeros_like(at)], 1
                        ),
                        "DRAM",
                    )
                    for base in (self._address, self._remote)
                ]
            )
        self._pipe.send(batches)
        began = time.perf_counter()
        handles = []
        for ours, theirs in lists:
            handle = self._agent.initialize_xfer("WRITE", ours, theirs, self._name, b"done")
            self._agent.transfer(handle)
            handles.append(handle)
        while any(self._agent.check_xfer_state(handle) == "PROC" for handle in handles):
            pass
        while not self._pipe.poll():
            self._agent.get_new_notifs()  # the notification may need a push, too
        seconds = time.perf_counter() - began
        self._pipe.recv()
        for handle in handles:
            handle.release()
        return seconds

    def close(self) -> None:
        self._pipe.send(0)
        self._process.join(10)


class OtherStore:
    """Another KV store, driven by bench/kv/peer_stores.py with its own Python."""

    def __init__(self, name: str, directory: Path) -> None:
        libraries = ":".join(map(str, directory.glob("root/**/x86_64-linux-gnu")))
        command = [directory / "venv/bin/python", ROOT / "bench/kv/peer_stores.py"]
        self._process = subprocess.Popen(
            [*command, name, directory / "root", "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            text=True,
        )
        assert self._say() == "ready"

    def _say(self, line: str = "") -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if line:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def get(self, size: int, batches: int) -> float:
        """Seconds to get `batches` of COUNT new objects, one batch after the other."""
        return float(self._say(f"{size} {batches}"))

    def close(self) -> None:
        self._process.communicate()


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
        """Until the reader holds every object in its own host's shared memory."""
        fetching = self.reader.fetch(keys, LAYOUT, size, [self.source], wait=30)
        came = 0
        try:
            async for batch in fetching:
                came += len(batch)
        finally:
            await fetching.aclose()
        assert came == len(keys), f"{came} of {len(keys)} came"

    async def move(self, size: int, batches: int) -> float:
        """Seconds to get `batches` of COUNT new objects at once from the other store."""
        wanted = [[secrets.token_bytes(16) for _ in range(COUNT)] for _ in range(batches)]
        for keys in wanted:
            await self.put(keys, size)
        began = time.perf_counter()
        await asyncio.gather(*(self.get(keys, size) for keys in wanted))
        return time.perf_counter() - began


def start_store(name: str, directory: Path, port: int, transports: str, verify: str) -> Any:
    env = {
        **os.environ,
        **UCX,
        "BATON_INSTANCE_ID": name,
        "BATON_GRPC_PORT": str(port),
        "BATON_ETCD_ENDPOINTS": "127.0.0.1:1",
        "BATON_TELEMETRY_LOG_LEVEL": "error",
        "BATON_KV_ARENA_DIR": str(directory),
        "BATON_KV_ARENA_BYTES": str(ARENA_BYTES),
        "BATON_KV_PEER_TRANSPORTS": transports,
        "BATON_KV_VERIFY": verify,
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen([sys.executable, "-m", "services.kvstore"], env=env)


WAYS = {
    "stores, NIXL, digests": ("nixl,grpc", "always"),
    "stores, NIXL, no digests": ("nixl,grpc", "never"),
    "stores, gRPC, digests": ("grpc", "always"),
}
OTHERS = {"redis": "Redis, TCP", "mooncake": "Mooncake Store, TCP"}
GOALS = {"stores, NIXL, digests": 0.65, "stores, NIXL, no digests": 0.8}


async def measure(
    rounds: int,
    in_flight: list[int],
    sizes: list[str],
    peers: Path | None,
    stack: AsyncExitStack,
    directory: Path,
) -> dict[str, dict[str, dict[str, float]]]:
    """GB/s by size and number of batches, way, and figure."""
    pairs = {}
    for number, (way, (transports, verify)) in enumerate(WAYS.items()):
        ports = (free_port(), free_port())
        clients = []
        for name, port in zip("ab", ports, strict=True):
            where = directory / f"{number}{name}"
            where.mkdir()
            store = start_store(f"{name}{number}", where, port, transports, verify)
            stack.callback(store.wait)
            stack.callback(store.terminate)
            address = f"127.0.0.1:{port}"
            client = KvStoreClient(lambda address=address: address, "bench", "1")
            clients.append(await stack.enter_async_context(client))
        for client in clients:
            assert await client.wait_connected(60)
        source = kvstore_pb2.KvSource(store_id=f"a{number}", address=f"127.0.0.1:{ports[0]}")
        pairs[way] = StorePair(source, *clients)
    raw = RawPeer()
    stack.callback(raw.close)
    others = {}
    for name, label in OTHERS.items() if peers is not None else ():
        others[label] = OtherStore(name, peers)
        stack.callback(others[label].close)
    await asyncio.sleep(5)  # arenas are touched in the background
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in sizes:
        size = SIZES[name]
        for batches in in_flight:
            if batches * COUNT * size > ARENA_BYTES // 2:
                continue
            seconds: dict[str, list[float]] = {way: [] for way in (RAW, *WAYS, *others)}
            for turn in range(rounds + 2):
                taken = {RAW: raw.write(size, batches)}
                for way, pair in pairs.items():
                    taken[way] = await pair.move(size, batches)
                for way, other in others.items():
                    taken[way] = other.get(size, batches)
                if turn >= 2:  # connections and caches are warm
                    for way, value in taken.items():
                        seconds[way].append(value)
            total = batches * COUNT * size / 1e9
            results[f"{name} × {COUNT} × {batches}"] = {
                way: {
                    "gb_per_s": total / statistics.median(values),
                    "best_gb_per_s": total / min(values),
                    "of_raw": statistics.median(
                        one / own for one, own in zip(seconds[RAW], values, strict=True)
                    ),
                }
                for way, values in seconds.items()
            }
    return results


async def run(
    rounds: int, in_flight: list[int], sizes: list[str], peers: Path | None
) -> dict[str, dict[str, dict[str, float]]]:
    directory = Path(tempfile.mkdtemp(prefix="baton-bench-", dir="/dev/shm"))
    try:
        async with AsyncExitStack() as stack:
            return await measure(rounds, in_flight, sizes, peers, stack, directory)
    finally:
        shutil.rmtree(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="per row")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4], help="batches at once")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--peers", type=Path, help="where make bench-kv-peers installed them")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    os.environ.update(UCX)
    logs.configure("bench", "bench", "error")
    results = uvloop.run(run(options.rounds, options.in_flight, options.sizes, options.peers))
    ways = (RAW, *WAYS, *(OTHERS.values() if options.peers else ()))
    print("GB/s (median, best), and the median of each round's share of NIXL alone")
    print(f"{'objects':>20}" + "".join(f"{way:>26}" for way in ways))
    for row, rates in results.items():
        cells = [
            f"{rates[way]['gb_per_s']:.2f} {rates[way]['best_gb_per_s']:.2f} "
            f"{rates[way]['of_raw']:.2f}×"
            for way in ways
        ]
        print(f"{row:>20}" + "".join(f"{cell:>26}" for cell in cells))
    print("goals: " + ", ".join(f"{way} ≥ {goal}×" for way, goal in GOALS.items()))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
