"""How fast objects go into a store and come out, against copying and hashing alone.

A store in a process of its own, one client. Each round writes 64 new objects (reserve, copy,
digest, commit) and reads them (fetch, copy, check), as a worker does.

    python bench/kv_shm.py [--seconds 2] [--json FILE]
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from baton.cluster.local_etcd import free_port
from baton.kv.client import KvStoreClient
from baton.kv.digest import object_digest
from baton.telemetry import logs

LAYOUT = b"L" * 16
COUNT = 64
SIZES = {"64 KiB": 64 * 1024, "1 MiB": 1024 * 1024}
ROOT = Path(__file__).parents[1]
Rates = dict[str, float]


def copying(size: int, seconds: float) -> Rates:
    """GB/s of copying, and of copying and hashing, from one private buffer to another."""
    sources = [memoryview(bytearray(secrets.token_bytes(size))) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]

    def copy(hashing: bool) -> float:
        began = time.perf_counter()
        for source, target in zip(sources, targets, strict=True):
            target[:] = source
            if hashing:
                object_digest(b"k" * 16, LAYOUT, 0, 0, 0, target)
        return COUNT * size / (time.perf_counter() - began) / 1e9

    return {"copy": _best(copy, False, seconds), "copy + digest": _best(copy, True, seconds)}


def _best(run: Callable[[bool], float], argument: bool, seconds: float) -> float:
    end = time.perf_counter() + seconds / 4
    rates = [run(argument)]
    while time.perf_counter() < end:
        rates.append(run(argument))
    return statistics.median(rates)


async def through_store(address: str, transport: str, size: int, seconds: float) -> Rates:
    """GB/s of putting, of getting by one reader, and the milliseconds of a small round."""
    sources = [secrets.token_bytes(size) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    async with KvStoreClient(lambda: address, "bench", "1", transports=[transport]) as client:
        assert await client.wait_connected(30)

        async def put(keys: list[bytes]) -> None:
            reservation = await client.reserve(keys, LAYOUT, size)
            try:
                assert len(reservation.slots) == COUNT
                for index, view in reservation.slots.items():
                    view[:] = sources[index]
                assert await reservation.commit(range(COUNT)) == COUNT
            finally:
                await reservation.aclose()

        async def get(keys: list[bytes]) -> None:
            fetching = client.fetch(keys, LAYOUT, size)
            try:
                async for batch in fetching:
                    for fetched in batch:
                        target = targets[fetched.index]
                        target[:] = fetched.data
                        assert fetched.verify(target)
                assert not fetching.missing
            finally:
                await fetching.aclose()

        puts: list[float] = []
        gets: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(puts) < 3:
            keys = [secrets.token_bytes(16) for _ in range(COUNT)]
            puts.append(await _rate(put, keys, size))
            gets.append(await _rate(get, keys, size))
    return {
        f"{transport} put": statistics.median(puts),
        f"{transport} get": statistics.median(gets),
        f"{transport} first put": puts[0],
    }


async def _rate(
    run: Callable[[list[bytes]], Awaitable[None]], keys: list[bytes], size: int
) -> float:
    began = time.perf_counter()
    await run(keys)
    return COUNT * size / (time.perf_counter() - began) / 1e9


def start_store(port: int) -> subprocess.Popen[bytes]:
    """A store without a cluster: it serves all the same, and goes on looking for etcd."""
    env = {
        **os.environ,
        "BATON_GRPC_PORT": str(port),
        "BATON_ETCD_ENDPOINTS": "127.0.0.1:1",
        "BATON_TELEMETRY_LOG_LEVEL": "error",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen([sys.executable, "-m", "services.kvstore"], env=env)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per row")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    logs.configure("bench", "bench", "error")
    port = free_port()
    store = start_store(port)
    try:
        results: dict[str, Rates] = {}
        for name, size in SIZES.items():
            rates = results[name] = copying(size, options.seconds)
            for transport in ("shm", "grpc"):
                rates |= uvloop.run(
                    through_store(f"127.0.0.1:{port}", transport, size, options.seconds)
                )
    finally:
        store.terminate()
        store.wait()
    print(f"{COUNT} objects at a time, GB/s (median)")
    print(f"{'':16}" + "".join(f"{name:>10}" for name in results))
    for row in next(iter(results.values())):
        print(f"{row:16}" + "".join(f"{rates[row]:10.2f}" for rates in results.values()))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
