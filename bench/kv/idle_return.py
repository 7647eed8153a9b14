"""Time until the KV of an idle conversation is back in the engine's memory.

A store holds the KV of a long prompt that the engine has evicted. The next turn fetches it through
shared memory, with every block verified. The time is from the start of the turn until all of it is
in the engine's pages. `memcpy and digest` copies the same pieces once and hashes each while it is
in cache, in the same run, on one thread between memory that was touched before: this is the upper
bound for one thread. The CPU time of the thread that copies shows how much of the rest is waiting,
for cores too: it is nicer than those that compute.

    python -m bench.kv.idle_return [--size 292M] [--tokens 8000] [--rounds 9] [--json FILE]
"""

import argparse
import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack

from baton.engine.base import Engine
from baton.engine.events import SampledTokens
from baton.engine.factory import create_engine
from baton.host.aligned_memory import aligned_memory
from baton.internal.v1 import worker_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.digest import object_digest
from baton.kv.keys import chain_root, prompt_keys
from baton.settings import EngineSettings
from baton.worker.core import WorkerCore
from baton.worker.engine_loop import EngineLoop
from bench.harness import cli
from bench.harness.checkpoints import SIZES, VOCAB, random_llama
from bench.harness.cluster import store

MODEL = "llama"
SALT = b"s" * 32
BATCH = 32


class Frames:
    """Records when the KV was in place, and the worker's report of it."""

    def __init__(self) -> None:
        self.prepared: worker_pb2.Prepared | None = None
        self.at = 0.0
        self.over = asyncio.Event()

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "prepared":
            self.at, self.prepared = time.perf_counter(), frame.prepared
        elif kind == "failed":
            raise SystemExit(f"the worker failed: {frame.failed.status.message}")
        if kind == "finished":
            self.over.set()

    def add_tokens(self, stream_id: int, tokens: SampledTokens) -> None:
        """Ignore tokens."""


async def fill(client: KvStoreClient, engine: Engine, keys: list[bytes]) -> None:
    """Put as many blocks of noise as a prompt has."""
    info = engine.info
    for first in range(0, len(keys), BATCH):
        part = keys[first : first + BATCH]
        reservation = await client.reserve(part, info.layout.layout_id, info.block_bytes)
        try:
            for index in reservation.slots:
                # Small numbers in bfloat16, so that a step over them computes no NaN.
                noise = bytearray(os.urandom(info.block_bytes))
                noise[1::2] = b"\x3c" * (info.block_bytes // 2)
                reservation.write(index, memoryview(noise))
            if await reservation.commit(sorted(reservation.slots)) != len(part):
                raise SystemExit("the store did not take everything")
        finally:
            await reservation.aclose()


async def turn(core: WorkerCore, prompt: list[int]) -> tuple[float, worker_pb2.Prepared]:
    """Return the seconds until the prompt's KV is in the engine's pages, with none before."""
    await core._loop.call(lambda engine: engine.evict_blocks())
    frames = Frames()
    start = worker_pb2.Start(stream_id=1, prompt_token_ids=prompt, cache_salt=SALT)
    start.generate.SetInParent()
    start.context.model = MODEL
    start.sampling.max_tokens, start.sampling.ignore_eos = 1, True
    began = time.perf_counter()
    core.open(start, frames, core.remove)
    async with asyncio.timeout(30):
        await frames.over.wait()
    assert frames.prepared is not None
    return frames.at - began, frames.prepared


async def copying_seconds(core: WorkerCore) -> float:
    """Return the CPU seconds of the worker's copying thread so far."""
    return await asyncio.get_running_loop().run_in_executor(core._io, time.thread_time)


class Copies:
    """Pieces that are copied from one memory to another."""

    def __init__(self, size: int, count: int) -> None:
        self._places = range(0, size * count, size)
        self._source, self._target = (aligned_memory(size * count) for _ in range(2))
        for memory in (self._source, self._target):
            for at in self._places:
                memory[at : at + size] = bytes(size)

    def seconds(self, *, digest: bool) -> float:
        """Return the seconds to copy all of them once, and to hash each if asked."""
        size = self._places.step
        began = time.perf_counter()
        for at in self._places:
            piece = self._target[at : at + size]
            piece[:] = self._source[at : at + size]
            if digest:
                object_digest(b"k" * 16, b"l" * 16, 0, 0, 0, piece)
        return time.perf_counter() - began


async def from_store(address: str, options: argparse.Namespace) -> dict[str, float]:
    settings = EngineSettings(
        model=random_llama(options.size), kv_bytes=options.memory_mib << 20, threads=2
    )
    async with AsyncExitStack() as stack:
        engine_loop = EngineLoop(lambda: create_engine(settings), lambda error: print(repr(error)))
        engine = await engine_loop.start()
        stack.push_async_callback(engine_loop.stop)
        info = engine.info
        client = await stack.enter_async_context(KvStoreClient(lambda: address, "bench", "1"))
        if not await client.wait_connected(10) or client.transport != "shm":
            raise SystemExit("the store shares no memory with this process")
        while not client.memory_mapped:
            await asyncio.sleep(0.05)
        core = WorkerCore(engine, engine_loop, client, MODEL, "epoch")
        stack.callback(core.close)
        prompt = [7 + 31 * i % (VOCAB - 16) for i in range(options.tokens)]
        root = chain_root(MODEL, info.weights_digest, info.layout.layout_id, b"", SALT)
        keys = list(prompt_keys(root, prompt, info.layout.block_tokens).full)
        await fill(client, engine, keys)
        whole, within, cpu, copies, bounds = [], [], [], [], []
        # Not on the loop, which answers the store's pings.
        pieces = await asyncio.to_thread(Copies, info.block_bytes, len(keys))
        for number in range(options.rounds + 1):
            computed = await copying_seconds(core)
            seconds, prepared = await turn(core, prompt)
            expected = len(keys) * info.block_bytes
            if prepared.fetched_bytes != expected:
                raise SystemExit(f"{prepared.fetched_bytes} of {expected} bytes came back")
            if number:  # the first one maps and touches
                whole.append(seconds)
                within.append(prepared.fetch_seconds)
                cpu.append(await copying_seconds(core) - computed)
                copies.append(await asyncio.to_thread(pieces.seconds, digest=False))
                bounds.append(await asyncio.to_thread(pieces.seconds, digest=True))
        total = len(keys) * info.block_bytes
    median = statistics.median
    return {
        "blocks": len(keys),
        "block_bytes": info.block_bytes,
        "bytes": total,
        "seconds": median(whole),
        "worst_seconds": max(whole),
        "copying_seconds": median(within),
        "copy_cpu_seconds": median(cpu),
        "memcpy_seconds": median(copies),
        "memcpy_digest_seconds": median(bounds),
        "gb_per_second": total / median(whole) / 1e9,
        "memcpy_gb_per_second": total / median(copies) / 1e9,
        "ms_per_gb": median(whole) / total * 1e12,
        "share_of_memcpy_digest": median(bounds) / median(whole),
    }


async def measure(options: argparse.Namespace) -> dict[str, float]:
    async with store({"BATON_STORE_ARENA_BYTES": str(options.memory_mib << 21)}) as address:
        row = await from_store(address, options)
    print(
        f"{row['blocks']:.0f} blocks of {row['block_bytes'] / 1024:.0f} KiB, "
        f"{row['bytes'] / 1e6:.0f} MB: back in {row['seconds'] * 1e3:.0f} ms "
        f"(worst of {options.rounds}: {row['worst_seconds'] * 1e3:.0f})\n"
        f"{row['gb_per_second']:.2f} GB/s, {row['ms_per_gb']:.0f} ms per GB; "
        f"memcpy of the same {row['memcpy_gb_per_second']:.2f} GB/s\n"
        f"memcpy and digest {row['memcpy_digest_seconds'] * 1e3:.0f} ms: "
        f"{row['share_of_memcpy_digest']:.2f} of it; "
        f"the copying thread computed for {row['copy_cpu_seconds'] * 1e3:.0f} ms"
    )
    return row


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", choices=SIZES, default="292M", help="size of the model")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument(
        "--memory-mib", type=int, default=1024, help="of the engine; the store has twice as much"
    )


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=9,
        smallest="--rounds 1 --size 6M --tokens 500 --memory-mib 32",
    )
