"""Peers that are killed, stop or restart amid pushes cost time, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.kvstore.peers.side import (
    COUNT,
    EVERYTHING,
    SIZE,
    Side,
    fetch,
    pushing,
    side,
)
from tests.support.processes.freeze import freeze, thaw
from tests.support.stores import (
    MIB,
    connected,
    get,
    keys_of,
    needs_nixl,
    put,
    source,
)

pytestmark = needs_nixl


@pytest.mark.parametrize("delay_ms", [0, 4])
async def test_a_peer_killed_amid_pushes_is_replaced_and_leaves_nothing(
    b: Side, spawn_store, tmp_path: Path, delay_ms: float
) -> None:
    a = await spawn_store("a", "nixl")
    async with (
        connected(a.address, "shm") as first,
        side(tmp_path, "c") as c,
    ):
        await put(first, keys_of(COUNT), SIZE)
        getting = asyncio.create_task(fetch(b, [source(a), c.store.source]))
        await pushing(b)
        await asyncio.sleep(delay_ms / 1000)
        a.kill()
        await put(c.client, keys_of(COUNT), SIZE)
        assert await getting == EVERYTHING
        await b.store.at_baseline(10)
        assert b.store.peers.quarantined == 0


async def test_a_peer_that_stops_amid_pushes_is_replaced_and_ends_them_when_it_goes_on(
    b: Side, spawn_store, tmp_path: Path
) -> None:
    a = await spawn_store("a", "nixl")
    async with (
        connected(a.address, "shm") as first,
        side(tmp_path, "c") as c,
    ):
        await put(first, keys_of(COUNT), SIZE)
        await put(c.client, keys_of(COUNT), SIZE)
        # Known to each other, so that the next is written at once.
        await put(first, keys_of(1, "warm"), SIZE)
        await get(b.client, keys_of(1, "warm"), SIZE, 5, [source(a)])
        getting = asyncio.create_task(fetch(b, [source(a)]))
        await pushing(b)
        freeze(a.pid)
        try:
            await asyncio.sleep(1)  # what is under way is late by now
            other = await fetch(b, [source(a), c.store.source])
            assert other == EVERYTHING
            assert await getting == EVERYTHING  # the first wait is fulfilled too
            held = b.store.peers.quarantined
            await asyncio.sleep(0.5)
            assert b.store.peers.quarantined == held  # no proof, no release
        finally:
            thaw(a.pid)
        await b.store.at_baseline(15)
        assert b.store.peers.quarantined == 0
        assert await get(b.client, keys_of(COUNT), SIZE) == EVERYTHING


async def test_a_peer_that_restarts_under_its_id_and_address_is_another_agent(
    b: Side, spawn_store
) -> None:
    a = await spawn_store("a", "nixl")
    port = int(a.address.rpartition(":")[2])
    async with connected(a.address, "shm") as first:
        await put(first, keys_of(COUNT), SIZE)
        await get(b.client, keys_of(1), SIZE, 10, [source(a)])
        before = b.came("nixl")
        assert before == SIZE
        getting = asyncio.create_task(fetch(b, [source(a)]))
        await pushing(b)
        a.kill()
    a = await spawn_store("a", "nixl", port)
    async with connected(a.address, "shm") as second:
        await put(second, keys_of(COUNT), SIZE)
        assert await getting == EVERYTHING
        await put(second, keys_of(COUNT, "more"), SIZE)
        assert await fetch(b, [source(a)], salt="more") == EVERYTHING
    await b.store.at_baseline(10)
    assert b.came("nixl") + b.came("grpc") >= 2 * COUNT * SIZE - MIB
    assert b.came("nixl") > before
