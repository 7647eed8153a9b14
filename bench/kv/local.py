"""One client over shared memory: put, get and lookup."""

import secrets
import statistics
import time

from bench.kv.batches import LAYOUT, attached, get_batch, names, put_all, put_batch
from bench.kv.memory import SharedMemory
from bench.kv.sizes import COUNT

Rates = dict[str, float]


async def put_and_get(
    address: str, size: int, rounds: int, memory: SharedMemory, arena_bytes: int
) -> Rates:
    """Return GB/s of the best round, and of the same copies alone.

    A round puts half of what the arena holds, and gets it.
    """
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    batches = max(1, arena_bytes // 2 // (COUNT * size))
    total = batches * COUNT * size / 1e9
    best: Rates = {}
    async with attached(address) as client:
        for _ in range(-(-arena_bytes // (batches * COUNT * size))):
            await put_all(client, names(batches), sources, arena_bytes)
        for number in range(rounds + 1):
            keys = names(batches)
            offsets = [memory.offsets(COUNT, size) for _ in range(batches)]
            began = time.perf_counter()
            for part in offsets:
                memory.copy_in(part, sources)
            copied_in = time.perf_counter()
            await put_all(client, keys, sources, arena_bytes)
            put = time.perf_counter()
            for part in offsets:
                memory.copy_out(part, targets)
            copied_out = time.perf_counter()
            for batch in keys:
                await get_batch(client, batch, targets)
            got = time.perf_counter()
            seconds = {
                "memcpy in": copied_in - began,
                "put": put - copied_in,
                "memcpy out": copied_out - put,
                "get": got - copied_out,
            }
            if number:  # the first one warms up
                for name, each in seconds.items():
                    best[name] = max(best.get(name, 0.0), total / each)
    best["put/memcpy"] = best["put"] / best["memcpy in"]
    best["get/memcpy"] = best["get"] / best["memcpy out"]
    return best


async def lookups(address: str, transport: str) -> float:
    """Return keys per second, in batches of 4,096 that are all present."""
    async with attached(address, transport) as client:
        held = [secrets.token_bytes(16) for _ in range(2048)]
        source = [memoryview(secrets.token_bytes(4096))] * 2048
        await put_batch(client, held, source)
        rates = []
        for _ in range(30):
            began = time.perf_counter()
            answer = await client.lookup([*held, *held], LAYOUT)
            rates.append(len(answer) / (time.perf_counter() - began))
            assert sum(answer) == 4096
        return statistics.median(rates)
