"""A prompt of 131,000 tokens on one machine, and a second turn whose KV comes back from disk.

One prefill worker, one decode worker, a store with a disk, a router and a frontend, each a process.
The model is tiny and stretched by YaRN. The prompt is computed next to a short stream; its KV then
leaves the engines as idle, and the store's memory for the disk; the conversation continues. At last
a tenant with a small limit of tokens per minute sends the same prompt.

    python -m bench.long_context [--tokens 131000] [--context 131072] [--json FILE]

Times of the prompt's tokens are CPU seconds of the prefill worker, which other work on the machine
hardly changes. `memcpy and digest` copies and hashes the same objects in this process, in the same
run: the upper bound for one thread.
"""

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from baton.client import AsyncClient, AuthenticationError, BatonClientError, Delta
from baton.kv.client.client import KvStoreClient
from baton.kv.digest import object_digest
from baton.tenancy.records.tenants import Tier
from bench.harness import cli
from bench.harness.checkpoints import VOCAB, random_yarn
from bench.harness.fleet import total
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.long_context.curve import Curve, Segment, fit, segments
from bench.long_context.watch import Watched, computed, own_memory, watching
from bench.tenancy.scene import Scene, scene

BLOCK_TOKENS = 16
TOKEN_BYTES = 2 * 2 * 32 * 4
"""KV of a token of `random_yarn`: layers · (K and V) · head_size · float32."""
FLOPS_PER_POSITION = 2 * 4 * 32
"""Of a token's attention, per token before it: layers · (two products of 2 each) · head_size."""
OUTPUT_TOKENS = 16
TURN_TOKENS = 20
IDLE_SECONDS = 2.0
SEGMENTS = 16
NOISE_OBJECTS = 128
NOISE_SECONDS = 60.0
"""To compute an object again: more than the conversation, which therefore goes first."""
SPILL_SECONDS = 120.0
TIMEOUT_SECONDS = 3600.0
COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}
Prompt = list[int]


class Client:
    """Requests of one tenant."""

    def __init__(self, client: AsyncClient, model: str) -> None:
        self._client = client
        self._model = model
        self._draw = random.Random(1)

    def tokens(self, count: int) -> Prompt:
        """Return random tokens."""
        return [self._draw.randrange(300, VOCAB) for _ in range(count)]

    async def ask(self, prompt: Prompt, output: int) -> tuple[float, Prompt]:
        """Return the seconds to the first token, and the output."""
        began = time.perf_counter()
        first, found = 0.0, []
        async for ids in self._stream(prompt, output):
            first = first or time.perf_counter() - began
            found += ids
        return first, found

    async def stream_on(self, gaps: list[float]) -> None:
        """Stream short answers one after the other; add the seconds between their tokens."""
        while True:
            last = 0.0
            async for _ in self._stream(self.tokens(64), 256):
                now = time.perf_counter()
                if last:
                    gaps.append(now - last)
                last = now

    async def _stream(self, prompt: Prompt, output: int) -> AsyncIterator[Prompt]:
        stream = self._client.generate(
            prompt,
            model=self._model,
            max_tokens=output,
            ignore_eos=True,
            temperature=0,
            timeout=TIMEOUT_SECONDS,
        )
        async with stream:
            async for event in stream:
                if isinstance(event, Delta) and event.token_ids:
                    yield list(event.token_ids)


@asynccontextmanager
async def streaming(client: Client) -> AsyncIterator[list[float]]:
    """Stream until the block exits; yield the list of the seconds between tokens."""
    gaps: list[float] = []
    task = asyncio.create_task(client.stream_on(gaps))
    try:
        yield gaps
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def client_of(up: Scene, tenant: str, **limits: Any) -> AsyncClient:
    """Return a client with the key of a new tenant."""
    await up.admin.create_tenant(tenant, Tier.ENTERPRISE, **limits)
    _, secret = await up.admin.create_key(await up.admin.find_project(tenant, "default"))
    client = AsyncClient(up.grpc[0], api_key=secret, retries=0)
    async with asyncio.timeout(10):
        while True:
            try:
                await client.models()
            except AuthenticationError:  # the frontend does not know the key yet
                await asyncio.sleep(0.05)
            else:
                return client


async def push_to_disk(up: Scene, arena_bytes: int) -> None:
    """Fill the store's memory with other objects, so that all that was there is on its disk."""
    (store,) = up.fleet.of("kvstore")
    address = f"127.0.0.1:{store.grpc_port}"
    most = arena_bytes - min(arena_bytes // 16, 1 << 25)  # below this the store spills ahead
    async with KvStoreClient(lambda: address, "bench", "1") as client:
        if not await client.wait_connected(10):
            raise SystemExit("the store does not answer")
        # As large as the blocks: room for larger objects takes what lies there, on disk or not.
        noise = memoryview(random.Random(2).randbytes(BLOCK_TOKENS * TOKEN_BYTES))
        for first in range(0, arena_bytes // len(noise), NOISE_OBJECTS):
            keys = [n.to_bytes(16, "little") for n in range(first, first + NOISE_OBJECTS)]
            reservation = await client.reserve(
                keys, b"n" * 16, len(noise), tenant="long", recompute_seconds=NOISE_SECONDS
            )
            try:
                for index in reservation.slots:
                    reservation.write(index, noise)
                await reservation.commit(sorted(reservation.slots))
            finally:
                await reservation.aclose()
            async with asyncio.timeout(SPILL_SECONDS):
                while total(await store.metrics(), "baton_kv_tier_used_bytes", "dram") > most:
                    await asyncio.sleep(0.05)


def memcpy_and_digest(size: int, count: int) -> float:
    """Return the seconds to copy and hash so many objects in this process."""
    data = memoryview(random.Random(3).randbytes(min(size * count, 1 << 26)))
    target = memoryview(bytearray(size))
    places = itertools.islice(itertools.cycle(range(0, len(data) - size + 1, size)), count)
    began = time.perf_counter()
    for at in places:
        target[:] = data[at : at + size]
        object_digest(b"k" * 16, b"l" * 16, 0, 0, 0, target)
    return time.perf_counter() - began


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    size = options.tokens * TOKEN_BYTES
    arena = max(16 << 20, size * 3 // 2)
    pages = max(16 << 20, (options.context + 4096) * TOKEN_BYTES)
    settings = {
        "BATON_ENGINE_MODEL": str(random_yarn(options.context)),
        "BATON_ENGINE_MODEL_NAME": "yarn",
        "BATON_ENGINE_KV_BYTES": str(pages),
        "BATON_ENGINE_KV_IDLE_SECONDS": str(IDLE_SECONDS),
        "BATON_PLACEMENT_DISAGGREGATION": "auto",
        "BATON_PLACEMENT_MAX_QUEUE_SECONDS": str(TIMEOUT_SECONDS),
        "BATON_STORE_ARENA_BYTES": str(arena),
        "BATON_STORE_DISK_BYTES": str(3 * arena),
    }
    async with (
        scene(COUNTS, settings, "torch", "float32") as up,
        await client_of(up, "long") as anyone,
        await client_of(up, "short", tokens_per_minute=options.tokens // 2) as limited,
    ):
        client = Client(anyone, "yarn")
        workers = up.fleet.of("prefill", "decode")
        await client.ask(client.tokens(600), 8)
        async with streaming(client) as alone:
            await asyncio.sleep(options.alone)
        before = own_memory(up.fleet)
        prompt = client.tokens(options.tokens)
        async with streaming(client) as beside, watching(up.fleet) as watched:
            first, output = await client.ask(prompt, OUTPUT_TOKENS)
        async with streaming(client) as after:  # the machine may have changed since
            await asyncio.sleep(options.alone)
        alone += after
        result = prefill_rows(watched, before, pages)
        result["first_seconds"] = first
        result["p99_alone"], result["p99_beside"] = percentile(alone, 99), percentile(beside, 99)
        print(
            f"{options.tokens} tokens: first token after {first:.1f} s\n"
            f"short stream, p99 between tokens: {result['p99_alone'] * 1e3:.1f} ms alone, "
            f"{result['p99_beside'] * 1e3:.1f} next to the prompt "
            f"({result['p99_beside'] / result['p99_alone']:.2f})"
        )
        await asyncio.sleep(2 * IDLE_SECONDS)
        await push_to_disk(up, arena)
        (store,) = up.fleet.of("kvstore")
        read = total(await store.metrics(), "baton_kv_disk_read_bytes_total")
        second, _ = await client.ask([*prompt, *output, *client.tokens(TURN_TOKENS)], 4)
        read = total(await store.metrics(), "baton_kv_disk_read_bytes_total") - read
        bound = memcpy_and_digest(BLOCK_TOKENS * TOKEN_BYTES, options.tokens // BLOCK_TOKENS)
        result |= {"second_seconds": second, "disk_bytes": read, "memcpy_digest_seconds": bound}
        print(
            f"second turn: first token after {second:.2f} s ({second / first:.4f} of the first's), "
            f"{read / 1e6:.0f} of {size / 1e6:.0f} MB from disk; "
            f"{second / size * 1e12:.0f} ms per GB, {bound / second:.2f} of memcpy and digest"
        )
        done = await computed(workers)
        began = time.perf_counter()
        try:
            await Client(limited, "yarn").ask(prompt, 4)
            raise SystemExit("the tenant's limit was ignored")
        except BatonClientError as error:
            refused = time.perf_counter() - began
            print(f"over the tenant's limit: refused after {refused * 1e3:.0f} ms: {error}")
        result["refused_seconds"] = refused
        result["refused_computed"] = await computed(workers) - done
        print(f"tokens computed for it: {result['refused_computed']}")
    return result


def prefill_rows(watched: Watched, before: dict[str, int], pages: int) -> dict[str, Any]:
    """Print the curve of the prefill, and memory; return both."""
    parts = segments(watched.progress, SEGMENTS)
    curve = fit(parts)
    show_curve(parts, curve)
    memory = {}
    table = Table(("process", "<12"), ("MB before", "10.0f"), ("peak", "6.0f"), ("more", "6.0f"))
    for name, size in watched.peak.items():
        held = pages if name.startswith(("prefill", "decode")) else 0
        memory[name] = {"before": before[name] - held, "peak": size - held}
        table.row(name, *(n / 1e6 for n in memory[name].values()), (size - before[name]) / 1e6)
    return {
        "constant_seconds": curve.constant,
        "slope_seconds": curve.slope,
        "unexplained": curve.unexplained,
        "segments": [(part.first, part.last, part.seconds) for part in parts],
        "memory": memory,
    }


def show_curve(parts: list[Segment], curve: Curve) -> None:
    """Print measured and fitted time per token."""
    table = Table(("position", "10.0f"), ("µs/token", "10.1f"), ("fitted", "8.1f"))
    for part in parts:
        table.row(part.middle, part.per_token * 1e6, curve.at(part.middle) * 1e6)
    speed = FLOPS_PER_POSITION / curve.slope / 1e9
    print(
        f"{curve.constant * 1e6:.1f} µs + {curve.slope * 1e9:.2f} ns · position "
        f"({speed:.1f} GFLOP/s of attention); unexplained: {curve.unexplained:.1%}"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=131_000, help="tokens of the prompt")
    parser.add_argument("--context", type=int, default=131_072, help="of the model")
    parser.add_argument(
        "--alone", type=float, default=30.0, help="seconds of the stream alone, before and after"
    )


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--tokens 6000 --context 8192 --alone 0.5",
    )
