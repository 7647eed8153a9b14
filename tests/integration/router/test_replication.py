"""Hot prefixes: a router has a real store prefetch what placements wait for elsewhere."""

import asyncio
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2
from baton.internal.v1.cluster_pb2 import ROLE_COMBINED
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import KvStoreClient
from baton.rpc.channels import open_channel
from tests.integration.router.conftest import LAYOUT
from tests.support.clock import within

CHAIN = [i.to_bytes(16, "little") for i in range(64)]
BLOCK_BYTES = 65_536
PAGES = {"free_pages": 1000, "total_pages": 1000}
SLOW_NETWORK = {
    "prefill_tokens_per_second": 1000.0,
    "fetch_bytes_per_second": 1.0,
    "decode_step_seconds": 0.01,
}
WAIT = {"pending_prompt_tokens": 30}
"""30 ms, a little less than what the router predicts for fetching the chain."""
LONG_WAIT = {"pending_prompt_tokens": 2000}


def prefetches(world, outcome: str) -> float:
    return world.routers[0].sample("baton_router_prefetches_total", outcome=outcome)


async def stat(service) -> kvstore_pb2.StatResponse:
    async with open_channel(service.address) as channel:
        return await KvStoreServiceStub(channel).Stat(kvstore_pb2.StatRequest(), timeout=5)


async def ready(service, arena_bytes: int) -> None:
    while (await stat(service)).capacity_bytes < arena_bytes:
        await asyncio.sleep(0.02)


@pytest.fixture
async def hosts(world, start_service, tmp_path: Path):
    """Two stores that share no memory, a worker beside each; the chain lies in the first store."""
    stores = []
    for name in ("store-a", "store-b"):
        (tmp_path / name).mkdir()
        settings = {
            "store.arena_dir": tmp_path / name,
            "store.arena_bytes": 16 << 20,
            "store.peer_transports": ("grpc",),
        }
        stores.append(await start_service("kvstore", settings, instance_id=name))
    workers = [
        await world.add(f"w{name[-1]}", ROLE_COMBINED, name) for name in ("store-a", "store-b")
    ]
    for worker in workers:
        await worker.load(**PAGES, **SLOW_NETWORK)
    async with within(20.0):
        for store in stores:
            await ready(store, 16 << 20)
    async with KvStoreClient(lambda: stores[0].address, "writer", "1") as client:
        assert await client.wait_connected(5)
        reservation = await client.reserve(CHAIN, LAYOUT, BLOCK_BYTES)
        for index, view in reservation.slots.items():
            view[:] = bytes([index]) * BLOCK_BYTES
        assert await reservation.commit(sorted(reservation.slots)) == len(CHAIN)
        await reservation.aclose()
    return world, stores, workers


async def ready_on(frontend, worker: str) -> None:
    """Wait until the router knows what the stores hold and how busy the workers are."""
    async with within(20.0):
        while True:
            answer = await frontend.ask(CHAIN)
            placed = answer.placement
            await frontend.return_tickets([placed.ticket])
            if placed.decode.instance_id == worker and placed.prediction.cached_tokens == 1024:
                return
            await asyncio.sleep(0.05)


async def test_a_waited_for_prefix_reaches_the_other_store_and_counts_as_local_there(hosts) -> None:
    world, stores, (a, _) = hosts
    frontend = world.frontend(await world.router())
    await ready_on(frontend, "wa")
    await a.load(**WAIT)
    async with within(20.0):
        while (await stat(stores[1])).objects < len(CHAIN):
            chosen = (await frontend.place(CHAIN)).decode.instance_id
            assert chosen == "wa" or (await stat(stores[1])).objects > 0  # the news came meanwhile
            await asyncio.sleep(0.05)
        while not prefetches(world, "completed"):
            await asyncio.sleep(0.01)
    assert (await stat(stores[1])).sessions == 0  # nobody asked for it there

    # Its events have told: the other worker has the prefix beside it, and no other store is named.
    await a.load(**LONG_WAIT)
    async with within(20.0):
        while (placed := await frontend.place(CHAIN)).sources:
            await asyncio.sleep(0.01)
    assert placed.decode.instance_id == "wb"
    local = len(CHAIN) * BLOCK_BYTES / 5e9
    assert placed.prediction.transfer_seconds == pytest.approx(local)

    async with KvStoreClient(lambda: stores[1].address, "reader", "1") as client:
        assert await client.wait_connected(5)
        fetching = client.fetch(CHAIN, LAYOUT, BLOCK_BYTES)
        copies = {}
        async for batch in fetching:
            for fetched in batch:
                copies[fetched.index] = bytearray(BLOCK_BYTES)
                assert fetched.copy_to(memoryview(copies[fetched.index]))
        await fetching.aclose()
    assert copies == {i: bytes([i]) * BLOCK_BYTES for i in range(len(CHAIN))}


async def test_nothing_is_prefetched_where_replication_is_off(hosts) -> None:
    world, stores, (a, _) = hosts
    frontend = world.frontend(await world.router({"placement.replication_threshold": 0}))
    await ready_on(frontend, "wa")
    await a.load(**WAIT)
    for _ in range(30):
        await frontend.place(CHAIN)
    await asyncio.sleep(0.5)
    assert (await stat(stores[1])).objects == 0


async def test_a_store_that_cannot_prefetch_is_asked_once_and_placements_go_on(hosts) -> None:
    world, stores, (a, b) = hosts
    await world.store("store-c")  # has no such rpc
    c = await world.add("wc", ROLE_COMBINED, "store-c")
    await c.load(**PAGES, **SLOW_NETWORK)
    frontend = world.frontend(await world.router())
    await ready_on(frontend, "wa")
    await b.load(**LONG_WAIT)
    await a.load(**WAIT)
    async with within(20.0):
        while not prefetches(world, "failed"):
            assert (await frontend.place(CHAIN)).decode.instance_id == "wa"
            await asyncio.sleep(0.01)
    for _ in range(50):
        assert (await frontend.place(CHAIN)).decode.instance_id == "wa"
        await asyncio.sleep(0.01)
    assert prefetches(world, "failed") == 1
    assert prefetches(world, "completed") == 0
    assert (await stat(stores[1])).objects == 0
