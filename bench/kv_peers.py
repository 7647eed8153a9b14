"""Other KV stores with the batches of bench/kv.py, which runs this with their own Python.

python kv_peers.py redis|mooncake ROOT ROUNDS      ROOT holds the unpacked Debian packages
"""

import json
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(root: Path) -> dict[str, str]:
    libraries = ":".join(
        str(path) for path in (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu")
    )
    return {**os.environ, "LD_LIBRARY_PATH": libraries}


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
        for _ in range(100):
            try:
                self.client.ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.1)

    def put(self, keys: list[str], blocks: list[bytes]) -> None:
        self.client.mset(dict(zip(keys, blocks, strict=True)))

    def get(self, keys: list[str], size: int) -> None:
        found = self.client.mget(keys)
        assert all(len(one) == size for one in found)

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


class Mooncake:
    """mooncake_master and MooncakeDistributedStore over TCP; the segment is this process's."""

    def __init__(self, root: Path) -> None:
        # Segment and client share a process here: without this, what is put would not travel.
        os.environ["MC_STORE_MEMCPY"] = "0"
        from mooncake.store import MooncakeDistributedStore

        port, metrics = free_port(), free_port()
        master = Path(sys.executable).parent / "mooncake_master"
        self.process = subprocess.Popen(
            [
                str(master),
                f"--rpc_port={port}",
                f"--metrics_port={metrics}",
                "--default_kv_lease_ttl=200",
            ],
            env=environment(root),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(2)
        self.client = MooncakeDistributedStore()
        code = self.client.setup(
            "127.0.0.1", "P2PHANDSHAKE", 4 << 30, 512 * MIB, "tcp", "", f"127.0.0.1:{port}"
        )
        if code:
            raise SystemExit(f"mooncake setup answered {code}")

    def put(self, keys: list[str], blocks: list[bytes]) -> None:
        assert self.client.put_batch(keys, blocks) == 0

    def get(self, keys: list[str], size: int) -> None:
        found = self.client.get_batch(keys)
        assert all(len(one) == size for one in found)

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            self.client.remove(key)

    def exist(self, keys: list[str]) -> None:
        assert all(one == 1 for one in self.client.batch_is_exist(keys))

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait()


def main() -> None:
    name, root, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    peer = {"redis": Redis, "mooncake": Mooncake}[name](root)
    results: dict[str, dict[str, float]] = {}
    try:
        for label, size in SIZES.items():
            blocks = [secrets.token_bytes(size) for _ in range(COUNT)]
            count = max(1, ROUND_BYTES // (COUNT * size))
            total = count * COUNT * size / 1e9
            puts, gets = [], []
            for _ in range(rounds + 1):
                batches = [[secrets.token_hex(16) for _ in range(COUNT)] for _ in range(count)]
                began = time.perf_counter()
                for keys in batches:
                    peer.put(keys, blocks)
                put = time.perf_counter()
                for keys in batches:
                    peer.get(keys, size)
                got = time.perf_counter()
                time.sleep(0.5)  # what was read is held for a moment, and cannot be removed
                for keys in batches:
                    peer.remove(keys)
                puts.append(total / (put - began))
                gets.append(total / (got - put))
            results[label] = {
                "put": statistics.median(puts[1:]),
                "get": statistics.median(gets[1:]),
            }
        keys = [secrets.token_hex(16) for _ in range(LOOKUPS)]
        for at in range(0, LOOKUPS, COUNT):
            peer.put(keys[at : at + COUNT], [b"x" * 4096] * COUNT)
        rates = []
        for _ in range(20):
            began = time.perf_counter()
            peer.exist(keys)
            rates.append(LOOKUPS / (time.perf_counter() - began))
        results["lookups"] = {"rate": statistics.median(rates)}
    finally:
        peer.close()
    print(json.dumps(results))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
