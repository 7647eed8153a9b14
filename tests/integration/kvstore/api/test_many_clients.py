"""Many clients that come, go and change their minds: every count returns to exactly 0."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from services.kvstore.api.admin import stat
from tests.support.stores import LAYOUT, block, connected, keys_of, running_store

SIZE = 16 * 1024
KEYS = keys_of(64)


async def read(client: KvStoreClient, draw: random.Random, sources: list) -> None:
    """Fetch some keys, check what comes, and stop at any time in any way."""
    at = draw.randrange(48)
    indexes = range(at, at + draw.randrange(1, 16))
    wait = draw.choice([0.0, 0.1, 2.0])
    fetching = client.fetch([KEYS[i] for i in indexes], LAYOUT, SIZE, sources, wait)
    end = draw.choice(["whole", "whole", "first batch", "abandon", "bad"])
    try:
        async for batch in fetching:
            for fetched in batch:
                copy = bytearray(fetched.nbytes)
                assert fetched.copy_to(memoryview(copy))
                assert copy == block(indexes[fetched.index], SIZE)
                if end == "bad" and draw.random() < 0.1:
                    fetched.bad = True
            await asyncio.sleep(draw.random() * 0.01)
            if end == "first batch":
                break
            if end == "abandon":
                fetching.stop_waiting()
    finally:
        await fetching.aclose()


async def write(client: KvStoreClient, draw: random.Random) -> None:
    """Reserve some keys, write and commit some of them, mark_unavailable or leave the rest."""
    at = draw.randrange(48)
    indexes = range(at, at + draw.randrange(1, 16))
    keys = [KEYS[i] for i in indexes]
    reservation = await client.reserve(keys, LAYOUT, SIZE, draw.random() < 0.2)
    try:
        slots = sorted(reservation.slots)
        chosen = slots[: draw.randrange(len(slots) + 1)]
        for index in chosen:
            reservation.slots[index][:] = block(indexes[index], SIZE)
        await asyncio.sleep(draw.random() * 0.01)
        await reservation.commit(chosen)
        if draw.random() < 0.3:
            await client.will_not_come(keys, LAYOUT)
    finally:
        await reservation.aclose()


async def live(client: KvStoreClient, draw: random.Random, sources: list, turns: int) -> None:
    for _ in range(turns):
        work = read(client, draw, sources) if draw.random() < 0.6 else write(client, draw)
        task = asyncio.create_task(work)
        if draw.random() < 0.3:
            await asyncio.sleep(draw.random() * 0.02)
            task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        except StoreUnavailableError:
            assert await client.wait_connected(10)


@pytest.mark.parametrize("seed", [1, 2])
async def test_everything_taken_is_given_back(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    async with AsyncExitStack() as stack:
        stores = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            running = running_store(tmp_path / name, 2 * 1024 * 1024, store_id=name)
            stores.append(await stack.enter_async_context(running))
        clients = []
        for number in range(8):
            store, other = stores[number % 2], stores[1 - number % 2]
            transport = ("shm", "grpc")[number // 2 % 2]
            client = await stack.enter_async_context(connected(store.address, transport))
            clients.append((client, [other.source] if number < 6 else []))
        async with asyncio.TaskGroup() as group:
            for client, sources in clients:
                group.create_task(live(client, random.Random(draw.random()), sources, 25))
        for store in stores:
            await store.at_baseline(5)
            counts = stat(store.store)
            store.store.log.flush()
            contents = store.store.log.contents()
            assert sum(map(len, contents.values())) == counts.objects
        for client, _ in clients:
            assert (client.leases, client.reservations) == (0, 0)
        assert sum(stat(store.store).hits for store in stores) > 100
        assert sum(store.store.moved_bytes["peer", "grpc"] for store in stores) > 0
