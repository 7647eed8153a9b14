"""A store that is away: callers learn it at once, hold nothing, and are served when it is back."""

import asyncio
import gc
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import (
    KvStoreServiceServicer,
    add_KvStoreServiceServicer_to_server,
)
from baton.kv.client.attach import attach
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.rpc.protocol import VERSION
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings, KvSettings
from tests.support.clock import within
from tests.support.network.proxy import TcpProxy
from tests.support.stores import LAYOUT, connected, get, keys_of, put, running_store
from tests.support.wait import eventually


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
async def test_every_method_says_so_at_once(address: str | None) -> None:
    async with KvStoreClient(lambda: address, "client", "1") as client:
        async with within(0.5):
            with pytest.raises(StoreUnavailableError):
                client.fetch(keys_of(1), LAYOUT, 4096, wait=30)
            with pytest.raises(StoreUnavailableError):
                await client.reserve(keys_of(1), LAYOUT, 4096)
            with pytest.raises(StoreUnavailableError):
                await client.will_not_come(keys_of(1), LAYOUT)
        assert not client.connected
        assert (client.store_id, client.transport) == ("", "")
        assert not await client.wait_connected(0.1)


class Nonsense(KvStoreServiceServicer):
    """What answers at a store's address, and is none."""

    def __init__(self) -> None:
        self.asked = 0
        self.version = VERSION

    async def Attach(self, request: Any, context: Any) -> pb.AttachResponse:  # noqa: N802
        self.asked += 1
        return pb.AttachResponse(
            session_id="s",
            arena_path="no\0path",
            arena_bytes=1 << 20,
            protocol_version=self.version,
        )


async def test_an_answer_that_makes_no_sense_is_a_store_that_is_away(tmp_path: Path) -> None:
    nonsense = Nonsense()
    async with running_store(tmp_path) as store, Server(GrpcSettings(port=0), "other") as other:
        other.add(
            lambda server: add_KvStoreServiceServicer_to_server(nonsense, server),
            "baton.internal.v1.KvStoreService",
        )
        await other.start()
        address = other.address
        async with KvStoreClient(lambda: address, "client", "1") as client:
            await eventually(lambda: nonsense.asked > 1)  # it does not give up
            with pytest.raises(StoreUnavailableError, match="cannot attach"):
                client.fetch(keys_of(1), LAYOUT, 4096)
            nonsense.version = VERSION + 2
            with pytest.raises(StoreUnavailableError, match="upgrade this process"):
                await attach(other.address, "client", "1")
            address = store.address
            assert await client.wait_connected(5)
            assert await put(client, keys_of(1), 4096) == 1


async def test_more_keys_than_may_be_named_are_refused_before_they_are_sent(
    tmp_path: Path,
) -> None:
    async with running_store(tmp_path) as store, connected(store.address, "grpc") as client:
        keys = keys_of(1) * 10_000_000
        for ask in (client.lookup, client.will_not_come):
            with pytest.raises(
                BatonError, match="10000000 keys exceed the limit of 65536"
            ) as caught:
                await ask(keys, LAYOUT)
            assert (caught.value.reason, caught.value.field) == (Reason.INVALID_FIELD, "keys")
        with pytest.raises(BatonError, match="exceed the limit of 65536"):
            client.fetch(keys, LAYOUT, 4096)
        with pytest.raises(BatonError, match="exceed the limit of 4096"):
            await client.reserve(keys, LAYOUT, 4096)
        assert client.connected
        assert await put(client, keys_of(1), 4096) == 1
        await store.at_baseline()


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
            async with within(2):
                with pytest.raises(StoreUnavailableError):
                    await waiting
                with pytest.raises(StoreUnavailableError):
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
            lambda: store.address, "client", "1", settings=KvSettings(transports=("shm",))
        ) as client:
            assert not await client.wait_connected(0.5)
            hidden.rename(store.store.arena.path)
            assert await client.wait_connected(5)
            assert client.transport == "shm"
            assert client.shm_domain == store.store.arena.shm_domain


async def test_a_store_that_freezes_is_left_in_time_and_found_again(tmp_path: Path) -> None:
    async with (
        running_store(tmp_path) as store,
        TcpProxy(store.address) as proxy,
        connected(proxy.address, "grpc") as client,
    ):
        fetching = client.fetch(keys_of(2), LAYOUT, 4096, wait=30)
        waiting = asyncio.create_task(anext(fetching))
        reservation = await client.reserve(keys_of(1, "mine"), LAYOUT, 4096)
        proxy.mute()
        async with within(4.5):
            with pytest.raises(StoreUnavailableError):
                await waiting
            with pytest.raises(StoreUnavailableError):
                await reservation.commit([0])
        await fetching.aclose()
        await reservation.aclose()
        with pytest.raises(StoreUnavailableError):
            client.fetch(keys_of(2), LAYOUT, 4096, wait=30)
        proxy.muted = False
        assert await client.wait_connected(20)
        assert await put(client, keys_of(2), 4096) == 2
        await store.at_baseline(10)


def addresses_of(path: Path) -> set[str]:
    """Return where this process has a file mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0] for line in lines if str(path) in line}


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's table of what is mapped")
async def test_memory_of_a_store_that_is_gone_is_given_back(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()  # a worker may not collect for hours
    try:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(running_store(tmp_path))
            address, path = store.address, store.store.arena.path
            stores_own = addresses_of(path)
            async with connected(lambda: address, "shm") as client:
                assert await put(client, keys_of(3), 4096) == 3
                assert (await get(client, keys_of(3), 4096))[1] == set()
                assert all(await client.lookup(keys_of(3), LAYOUT))
                assert addresses_of(path) - stores_own
                await stack.aclose()
                async with running_store(tmp_path) as again:
                    address = again.address
                    assert await client.wait_connected(5)
                    assert addresses_of(path) - stores_own == set()
    finally:
        gc.enable()
