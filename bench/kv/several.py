"""Several clients of one store at once, each a process: `python -m bench.kv.store --only clients`.

As a program it is one of them: each line of standard input starts the next step of `WORK`.
"""

import asyncio
import secrets
import sys
import time
from contextlib import AsyncExitStack

import uvloop

from baton.process.allocator import keep_freed_memory
from baton.telemetry import logs
from bench.harness.child import helper
from bench.kv.batches import LANES, attached, get_batch, names, put_all
from bench.kv.memory import SharedMemory
from bench.kv.sizes import COUNT, MIB

WORK = ("memcpy in", "put", "memcpy out", "get")
Rates = dict[str, float]


async def together(address: str, count: int, size: int, seconds: float, arena_bytes: int) -> Rates:
    """Return GB/s of `count` clients together."""
    arguments = (address, str(size), str(seconds), str(arena_bytes // count))
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(helper("bench.kv.several", *arguments))
            for _ in range(count)
        ]
        rates = {}
        for what in WORK:
            for client in clients:
                assert await client.receive() == "ready"
            for client in clients:
                await client.send("go")
            rates[what] = sum([float(await client.receive()) for client in clients])
    return rates


async def work(address: str, size: int, seconds: float, arena_bytes: int) -> None:
    """Run one of several clients, whose part of the arena has this size."""
    loop = asyncio.get_running_loop()
    memory = SharedMemory(arena_bytes)
    sources = [memoryview(secrets.token_bytes(size)) for _ in range(COUNT)]
    targets = [memoryview(bytearray(size)) for _ in range(COUNT)]
    batches = max(2 * LANES, 64 * MIB // (COUNT * size))
    # The objects to get must still exist: put alone, they are a quarter of the arena in all.
    kept = max(1, min(batches, arena_bytes // 4 // (COUNT * size)))
    async with attached(address) as client:
        keys = names(batches)
        await put_all(client, keys, sources, arena_bytes)
        for what in WORK:
            if what == "get":
                keys = names(kept)
                await put_all(client, keys, sources, arena_bytes)
            print("ready", flush=True)
            await loop.run_in_executor(None, sys.stdin.readline)
            done, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                if what == "put":
                    keys = names(batches)
                    await put_all(client, keys, sources, arena_bytes)
                    done += batches * COUNT * size
                elif what == "memcpy in":
                    memory.copy_in(memory.offsets(COUNT, size), sources)
                    done += COUNT * size
                elif what == "memcpy out":
                    memory.copy_out(memory.offsets(COUNT, size), targets)
                    done += COUNT * size
                else:
                    for batch in keys:
                        await get_batch(client, batch, targets)
                        done += COUNT * size
            print(done / (time.perf_counter() - began) / 1e9, flush=True)


if __name__ == "__main__":
    logs.configure("bench", "bench", "error")
    keep_freed_memory()  # as every process of Baton does
    address, size, seconds, arena_bytes = sys.argv[1:]
    uvloop.run(work(address, int(size), float(seconds), int(arena_bytes)))
