"""Batches of objects put into and got from a store as workers do."""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

from baton.kv.client.client import KvStoreClient
from baton.settings import KvSettings
from bench.kv.sizes import COUNT, MIB

LAYOUT = b"L" * 16
PART_BYTES = 8 * MIB
"""Committed over gRPC while the next part is copied, as workers do."""
LANES = 4
"""Batches in flight."""


def names(batches: int) -> list[list[bytes]]:
    """Return new keys for some batches."""
    return [[secrets.token_bytes(16) for _ in range(COUNT)] for _ in range(batches)]


@asynccontextmanager
async def attached(address: str, transport: str = "shm") -> AsyncIterator[KvStoreClient]:
    """Connect to a store and wait until the client has mapped the arena, if it can."""
    name = secrets.token_hex(4)
    async with KvStoreClient(
        lambda: address, "bench", name, settings=KvSettings(transports=(transport,))
    ) as client:
        if not await client.wait_connected(60) or client.transport != transport:
            raise SystemExit(f"no connection to the store at {address} by {transport}")
        while not client.memory_mapped:
            await asyncio.sleep(0.05)
        yield client


async def put_batch(client: KvStoreClient, keys: list[bytes], sources: list[memoryview]) -> None:
    """Reserve, copy, digest and commit."""
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
    client: KvStoreClient, batches: list[list[bytes]], sources: list[memoryview], arena_bytes: int
) -> None:
    """Put batches, as many in flight as half of this much of the arena holds."""
    batch_bytes = sum(source.nbytes for source in sources)
    lanes = max(1, min(LANES, arena_bytes // 2 // batch_bytes))
    await _in_lanes(lanes, batches, lambda keys: put_batch(client, keys, sources))


async def get_batch(client: KvStoreClient, keys: list[bytes], targets: list[memoryview]) -> None:
    """Find, copy and check."""
    async with aclosing(client.fetch(keys, LAYOUT, targets[0].nbytes)) as fetching:
        async for batch in fetching:
            for fetched in batch:
                assert fetched.copy_to(targets[fetched.index])
        assert not fetching.missing, len(fetching.missing)


async def get_all(
    client: KvStoreClient, batches: list[list[bytes]], targets: list[memoryview], lanes: int
) -> None:
    """Get batches, `lanes` in flight."""
    await _in_lanes(lanes, batches, lambda keys: get_batch(client, keys, targets))


async def _in_lanes(
    lanes: int, batches: list[list[bytes]], work: Callable[[list[bytes]], Coroutine[Any, Any, None]]
) -> None:
    waiting = deque(batches)

    async def lane() -> None:
        while waiting:
            await work(waiting.popleft())

    async with asyncio.TaskGroup() as group:
        for _ in range(lanes):
            group.create_task(lane())
