"""A store that is away: callers learn it at once, hold nothing, and are served when it is back."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from baton.kv.client import KvStoreClient, StoreAway
from tests.integration.kvstore.conftest import (
    LAYOUT,
    connected,
    eventually,
    get,
    keys_of,
    put,
    running_store,
)


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
async def test_every_method_says_so_at_once(address: str | None) -> None:
    async with KvStoreClient(lambda: address, "client", "1") as client:
        async with asyncio.timeout(0.5):
            with pytest.raises(StoreAway):
                client.fetch(keys_of(1), LAYOUT, 4096, wait=30)
            with pytest.raises(StoreAway):
                await client.reserve(keys_of(1), LAYOUT, 4096)
            with pytest.raises(StoreAway):
                await client.will_not_come(keys_of(1), LAYOUT)
        assert not client.connected
        assert (client.store_id, client.transport) == ("", "")
        assert not await client.wait_connected(0.1)


@pytest.mark.parametrize("transport", ["shm", "grpc"])
async def test_whoever_waits_is_woken_when_it_goes(tmp_path: Path, transport: str) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(running_store(tmp_path))
        address: str | None = store.address
        async with connected(lambda: address, transport) as client:
            await put(client, keys_of(1), 4096)
            fetching = client.fetch(keys_of(3), LAYOUT, 4096, wait=30)
            (fetched,) = await anext(fetching)
            waiting = asyncio.create_task(anext(fetching))
            reservation = await client.reserve(keys_of(2, "mine"), LAYOUT, 4096)
            assert client.reservations == 2
            await stack.aclose()
            async with asyncio.timeout(2):
                with pytest.raises(StoreAway):
                    await waiting
                with pytest.raises(StoreAway):
                    await reservation.commit([0])
            # What was mapped stays mapped for whoever still looks at it.
            assert fetched.copy_to(memoryview(bytearray(4096)))
            assert len(bytes(reservation.slots[1])) == 4096
            assert fetching.missing == {1, 2}
            await fetching.aclose()
            await reservation.aclose()
            assert (client.leases, client.reservations) == (0, 0)
            async with running_store(tmp_path) as again:
                address = again.address
                assert await client.wait_connected(5)
                assert await put(client, keys_of(1), 4096) == 1
                assert (await get(client, keys_of(1), 4096))[1] == set()


async def test_a_cancelled_reserve_leaves_nothing_reserved(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store, connected(store.address) as client:
        for _ in range(20):
            reserving = asyncio.create_task(client.reserve(keys_of(3), LAYOUT, 4096))
            await asyncio.sleep(0)
            reserving.cancel()
            await asyncio.wait([reserving])
        await eventually(lambda: client.connected)
        await put(client, keys_of(1, "last"), 4096)  # answered after all of them
        assert store.counts() == (0, 0, 0, 0, 0)


async def test_a_client_without_a_common_transport_stays_away(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        hidden = store.store.arena.path.rename(tmp_path / "hidden")
        async with KvStoreClient(
            lambda: store.address, "client", "1", transports=["shm"]
        ) as client:
            assert not await client.wait_connected(0.5)
            hidden.rename(store.store.arena.path)
            assert await client.wait_connected(5)
            assert client.transport == "shm"
            assert client.shm_domain == store.store.arena.shm_domain
