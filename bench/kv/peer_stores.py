"""Other KV stores with the batches of bench/kv/store.py, which runs this with their own Python.

Each keeps its data in another process than the one that puts and gets, and both speak TCP.

peer_stores.py redis|mooncake ROOT ROUNDS      ROOT holds the unpacked Debian packages
peer_stores.py redis|mooncake ROOT serve       times one get per line of standard input
"""

import ctypes
import json
import mmap
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

COUNT = 64
KIB, MIB = 1 << 10, 1 << 20
SIZES = {"64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB}
ROUND_BYTES = 256 * MIB
LOOKUPS = 4096
SEGMENT_BYTES = 2 << 30
PATTERN_BYTES = 4093
"""Data repeats after so many bytes, a prime: no two objects of a batch are alike."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(root: Path) -> dict[str, str]:
    libraries = ":".join(
        str(path) for path in (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu")
    )
    return {**os.environ, "LD_LIBRARY_PATH": libraries}


def new_keys() -> list[str]:
    return [secrets.token_hex(16) for _ in range(COUNT)]


def content(size: int) -> bytes:
    """The bytes of a batch."""
    total = COUNT * size
    return (secrets.token_bytes(PATTERN_BYTES) * (total // PATTERN_BYTES + 1))[:total]


class Redis:
    """redis-server and redis-py with hiredis; one MSET or MGET per batch, no persistence."""

    def __init__(self, root: Path) -> None:
        import redis

        port = free_port()
        command = [
            str(root / "usr/bin/redis-server"),
            "--port",
            str(port),
            "--save",
            "",
            "--bind",
            "127.0.0.1",
        ]
        self.process = subprocess.Popen(command, env=environment(root), stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=port)
        self.blocks: list[bytes] = []
        for _ in range(100):
            try:
                self.client.ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.1)

    def prepare(self, size: int) -> None:
        data = content(size)
        self.blocks = [data[at : at + size] for at in range(0, len(data), size)]

    def put(self, keys: list[str]) -> None:
        self.client.mset(dict(zip(keys, self.blocks, strict=True)))

    def get(self, keys: list[str]) -> None:
        size = len(self.blocks[0])
        assert all(len(one) == size for one in self.client.mget(keys))

    def check(self, keys: list[str]) -> None:
        assert self.client.mget(keys) == self.blocks

    def remove(self, keys: list[str]) -> None:
        self.client.delete(*keys)

    def exist(self, keys: list[str]) -> None:
        pipe = self.client.pipeline(transaction=False)
        for key in keys:
            pipe.exists(key)
        assert all(pipe.execute())

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def touched(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def segment(master: str) -> None:
    """The process that holds Mooncake's data, until its standard input ends."""
    from mooncake.store import MooncakeDistributedStore

    client = MooncakeDistributedStore()
    code = client.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT_BYTES, 16 * MIB, "tcp", "", master)
    print(code, flush=True)
    sys.stdin.read()
    client.close()


class Mooncake:
    """Mooncake Store over TCP: master, segment and client are a process each.

    Out of registered memory and into it, as its users do. Its master grants every reader a lease,
    and a get that takes longer than its lease answers nothing (LEASE_EXPIRED): the lease is the
    default of 10 s, and what was read is removed by force, for a removal spares what is leased.
    """

    def __init__(self, root: Path) -> None:
        from mooncake.store import MooncakeDistributedStore

        port, metrics = free_port(), free_port()
        path = Path(sys.executable).parent / "mooncake_master"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.master = subprocess.Popen(
            [str(path), f"--rpc_port={port}", f"--metrics_port={metrics}"],
            env=environment(root),
            **quiet,
        )
        time.sleep(2)
        master = f"127.0.0.1:{port}"
        self.holder = subprocess.Popen(
            [sys.executable, __file__, "segment", master],
            env=environment(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.holder.stdout is not None
        if (code := self.holder.stdout.readline().strip()) != "0":
            raise SystemExit(f"mooncake's segment answered {code!r}")
        self.client = MooncakeDistributedStore()
        # No segment of its own: all data is the other process's.
        if code := self.client.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", master):
            raise SystemExit(f"mooncake's client answered {code}")
        self.size = max(SIZES.values())
        self.memories = [touched(COUNT * self.size) for _ in range(2)]
        self.sources, self.targets = (
            ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in self.memories
        )
        for address in (self.sources, self.targets):
            assert self.client.register_buffer(address, COUNT * self.size) == 0
        self._warm()

    def _warm(self) -> None:
        """Touch the segment's memory: as much of it as can be held at once."""
        batches = [new_keys() for _ in range(int(SEGMENT_BYTES * 0.85) // (COUNT * self.size))]
        for keys in batches:
            self.put(keys)
        for keys in batches:
            self.remove(keys)

    def prepare(self, size: int) -> None:
        self.size = size
        self.memories[0][: COUNT * size] = content(size)

    def _space(self, memory: int) -> tuple[list[int], list[int]]:
        return [memory + index * self.size for index in range(COUNT)], [self.size] * COUNT

    def put(self, keys: list[str]) -> None:
        codes = self.client.batch_put_from(keys, *self._space(self.sources))
        assert not any(codes), set(codes)

    def get(self, keys: list[str]) -> None:
        came = self.client.batch_get_into(keys, *self._space(self.targets))
        assert all(one == self.size for one in came), set(came)

    def check(self, keys: list[str]) -> None:
        total = COUNT * self.size
        self.memories[1][:total] = bytes(total)
        self.get(keys)
        assert self.memories[1][:total] == self.memories[0][:total]

    def remove(self, keys: list[str]) -> None:
        codes = self.client.batch_remove(keys, True)
        assert not any(codes), set(codes)

    def exist(self, keys: list[str]) -> None:
        assert all(one == 1 for one in self.client.batch_is_exist(keys))

    def close(self) -> None:
        self.client.close()
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        for process in (self.holder, self.master):
            process.terminate()
            process.wait()


def measure(peer: Redis | Mooncake, rounds: int) -> dict[str, dict[str, float]]:
    """GB/s by size: the best round, as in bench/kv/store.py, and the median; lookups per second."""
    results: dict[str, dict[str, float]] = {}
    for label, size in SIZES.items():
        peer.prepare(size)
        count = max(1, ROUND_BYTES // (COUNT * size))
        total = count * COUNT * size / 1e9
        puts, gets = [], []
        for _ in range(rounds + 1):
            batches = [new_keys() for _ in range(count)]
            began = time.perf_counter()
            for keys in batches:
                peer.put(keys)
            put = time.perf_counter()
            for keys in batches:
                peer.get(keys)
            got = time.perf_counter()
            if not puts:
                peer.check(batches[-1])
            for keys in batches:
                peer.remove(keys)
            puts.append(total / (put - began))
            gets.append(total / (got - put))
        results[label] = {
            "put": max(puts[1:]),
            "get": max(gets[1:]),
            "median put": statistics.median(puts[1:]),
            "median get": statistics.median(gets[1:]),
        }
    peer.prepare(4096)
    held = [new_keys() for _ in range(LOOKUPS // COUNT)]
    for keys in held:
        peer.put(keys)
    names = [key for keys in held for key in keys]
    rates = []
    for _ in range(20):
        began = time.perf_counter()
        peer.exist(names)
        rates.append(LOOKUPS / (time.perf_counter() - began))
    results["lookups"] = {"rate": statistics.median(rates)}
    return results


def serve(peer: Redis | Mooncake) -> None:
    """For each line `SIZE BATCHES`: put new objects, then answer the seconds that getting takes."""
    print("ready", flush=True)
    for line in sys.stdin:
        size, count = map(int, line.split())
        peer.prepare(size)
        batches = [new_keys() for _ in range(count)]
        for keys in batches:
            peer.put(keys)
        began = time.perf_counter()
        for keys in batches:
            peer.get(keys)
        print(time.perf_counter() - began, flush=True)
        for keys in batches:
            peer.remove(keys)


def main() -> None:
    name, root = sys.argv[1:3]
    if name == "segment":
        segment(root)
        return
    peer = {"redis": Redis, "mooncake": Mooncake}[name](Path(root))
    try:
        if sys.argv[3] == "serve":
            serve(peer)
        else:
            print(json.dumps(measure(peer, int(sys.argv[3]))), flush=True)
    finally:
        peer.close()


if __name__ == "__main__":
    main()
