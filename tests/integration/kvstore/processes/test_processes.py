"""Stores as processes: they die, come back, fetch from each other, and leave nothing behind."""

import asyncio
import os
from pathlib import Path

import pytest

from baton.settings import StartupError
from baton.settings.transports import GRPC, NIXL
from tests.support.clock import within
from tests.support.stores import (
    LAYOUT,
    MIB,
    assert_baseline,
    block,
    connected,
    get,
    keys_of,
    needs_nixl,
    put,
    source,
    wait_stat,
)
from tests.support.wait import eventually

SIZE = 64 * 1024


@pytest.mark.parametrize(
    ("transport", "c_is_named"),
    [(GRPC, "from the start"), pytest.param(NIXL, "when A is dead", marks=needs_nixl)],
)
async def test_get_starts_before_a_computes_then_a_dies_and_c_fulfils_it(
    spawn_store, c_is_named: str, transport: str
) -> None:
    a, b, c = await asyncio.gather(*(spawn_store(name, transport) for name in ("a", "b", "c")))
    keys = keys_of(6)
    async with (
        connected(b.address, "shm") as decode,
        connected(a.address, "shm") as first,
        connected(c.address, "shm", client_id="other") as second,
    ):
        sources = [source(a), source(c)] if c_is_named == "from the start" else [source(a)]
        found: dict[int, bytes] = {}
        fetching = decode.fetch(keys, LAYOUT, SIZE, sources, wait=30)

        async def read() -> None:
            async for batch in fetching:
                for fetched in batch:
                    copy = bytearray(fetched.nbytes)
                    assert fetched.copy_to(memoryview(copy))
                    found[fetched.index] = bytes(copy)

        reading = asyncio.create_task(read())
        try:
            await wait_stat(a.address, waiters=1)
            await put(first, keys[:2], SIZE)  # A computes the first chunk…
            await eventually(lambda: len(found) == 2)
            a.kill()  # …and dies
            if c_is_named == "when A is dead":
                fetching.replace_sources([source(c)])
            await put(second, keys[2:], SIZE, first=2)
            async with within(10):
                await reading
        finally:
            reading.cancel()
            await fetching.aclose()
        assert found == {index: block(index, SIZE) for index in range(6)}
        assert fetching.missing == set()
        await wait_stat(c.address, leases=0, reservations=0, waiters=0)
        moved = f'baton_kv_moved_bytes_total{{transport="{transport}",way="peer"}}'
        assert (await b.metrics())[moved] == 6 * SIZE
        # What came from elsewhere is B's own now.
        await wait_stat(b.address, leases=0, reservations=0, waiters=0, objects=6)
    await assert_baseline(b.address)


async def test_a_store_that_is_killed_and_started_again_is_found_and_has_a_new_arena(
    spawn_store, tmp_path: Path
) -> None:
    store = await spawn_store("a")
    (first,) = (tmp_path / "a").glob("*.arena")
    address = store.address
    async with connected(lambda: address, "shm") as client:
        await put(client, keys_of(3), SIZE)
        fetching = client.fetch(keys_of(5), LAYOUT, SIZE, wait=30)
        batch = await anext(fetching)
        epoch = client.epoch
        store.kill()
        await eventually(lambda: not client.connected)
        # The old memory is still mapped: what was leased is intact, and nobody crashes.
        copy = bytearray(SIZE)
        for index, fetched in enumerate(batch):
            assert fetched.copy_to(memoryview(copy))
            assert copy == block(index, SIZE)
        await fetching.aclose()
        assert first.exists()  # nobody could remove it
        address = (await spawn_store("a")).address
        (second,) = (tmp_path / "a").glob("*.arena")
        assert second != first
        assert await client.wait_connected(10)
        assert client.epoch != epoch
        assert (client.leases, client.reservations) == (0, 0)
        assert await get(client, keys_of(3), SIZE) == ({}, {0, 1, 2})
        assert await put(client, keys_of(3), SIZE) == 3
    await assert_baseline(address)


async def test_a_store_registers_shows_metrics_and_leaves_no_file(
    start_service, tmp_path: Path
) -> None:
    store = await start_service("kvstore", {"store.arena_bytes": 16 * MIB})
    assert store.instance.shm_domain
    async with connected(store.address, "grpc") as client:
        await put(client, keys_of(2), SIZE)
        metrics = await store.metrics()
        assert metrics["baton_kv_objects"] == 2
        assert metrics['baton_kv_moved_bytes_total{transport="grpc",way="put"}'] == 2 * SIZE
        assert await store.stop() == 0
    left = await asyncio.to_thread(os.listdir, tmp_path)
    assert left == []


async def test_a_store_that_does_not_fit_says_so(start_service) -> None:
    with pytest.raises(StartupError, match="BATON_STORE_ARENA_BYTES"):
        await start_service("kvstore", {"store.arena_bytes": 900 << 40})
