"""Objects go in and come out, over both transports; everything taken is given back."""

import asyncio

import pytest

from baton.errors import BatonError, Reason
from baton.kv.client.client import KvStoreClient
from services.kvstore.api.admin import stat
from tests.support.clock import Stopwatch, within
from tests.support.stores import LAYOUT, MIB, RunningStore, block, connected, get, keys_of, put
from tests.support.wait import eventually

SIZES = [1, 4096, 64 * 1024, 2 * MIB + 5]


@pytest.mark.parametrize("size", SIZES)
async def test_what_was_put_comes_out_byte_for_byte(client: KvStoreClient, size: int) -> None:
    keys = keys_of(3)
    assert await put(client, keys, size) == 3
    found, missing = await get(client, keys, size)
    assert found == {index: block(index, size) for index in range(3)}
    assert missing == set()
    assert (client.leases, client.reservations) == (0, 0)


async def test_get_without_wait_answers_what_is_missing_at_once(client: KvStoreClient) -> None:
    keys = keys_of(4)
    await put(client, keys[:2], 4096)
    async with within(1):
        found, missing = await get(client, keys, 4096)
    assert (set(found), missing) == ({0, 1}, {2, 3})


async def test_get_waits_for_objects_that_nobody_has_computed(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(6)
    getting = asyncio.create_task(get(client, keys, 4096, wait=10))
    await eventually(lambda: stat(store.store).waiters)
    assert stat(store.store).leases == 0  # waiting holds nothing
    for at in range(0, 6, 2):
        await put(client, keys[at : at + 2], 4096, first=at)
    found, missing = await getting
    assert found == {index: block(index, 4096) for index in range(6)}
    assert missing == set()


async def test_objects_come_out_while_later_ones_are_still_to_be_written(
    client: KvStoreClient,
) -> None:
    keys = keys_of(2)
    fetching = client.fetch(keys, LAYOUT, 4096, wait=10)
    try:
        await put(client, keys[:1], 4096)
        async with within(5):
            batch = await anext(fetching)
        assert [fetched.index for fetched in batch] == [0]
        await put(client, keys[1:], 4096, first=1)
        async with within(5):
            batch = await anext(fetching)
        assert [fetched.index for fetched in batch] == [1]
        with pytest.raises(StopAsyncIteration):
            await anext(fetching)
    finally:
        await fetching.aclose()


async def test_a_wait_ends_at_its_time(client: KvStoreClient) -> None:
    watch = Stopwatch()
    found, missing = await get(client, keys_of(2), 4096, wait=0.3)
    assert (found, missing) == ({}, {0, 1})
    assert watch.elapsed > 0.25
    assert watch.seconds < 2


async def test_will_not_come_ends_the_wait(client: KvStoreClient, store: RunningStore) -> None:
    keys = keys_of(2)
    getting = asyncio.create_task(get(client, keys, 4096, wait=30))
    await eventually(lambda: stat(store.store).waiters)
    await put(client, keys[:1], 4096)
    await client.will_not_come(keys[1:], LAYOUT)
    async with within(2):
        found, missing = await getting
    assert (set(found), missing) == ({0}, {1})


async def test_will_not_come_said_just_before_the_wait_counts(client: KvStoreClient) -> None:
    keys = keys_of(1)
    await client.will_not_come(keys, LAYOUT)
    await put(client, keys_of(1, "other"), 4096)  # answered after it
    async with within(2):
        assert await get(client, keys, 4096, wait=30) == ({}, {0})


async def test_abandon_yields_what_is_there_and_ends(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(3)
    await put(client, keys[:2], 4096)
    fetching = client.fetch(keys, LAYOUT, 4096, wait=30)
    try:
        async with within(5):
            if client.transport == "grpc":
                await eventually(lambda: stat(store.store).leases == 2)
            fetching.stop_waiting()
            found = [fetched.index async for batch in fetching for fetched in batch]
        # Over gRPC, what the store had not told by then counts as not there.
        assert found in ([0, 1], [])
        assert fetching.missing == {0, 1, 2} - set(found)
        assert fetching.bytes == 4096 * len(found)
    finally:
        await fetching.aclose()


async def test_a_second_writer_finds_the_object_present(client: KvStoreClient) -> None:
    keys = keys_of(2)
    await put(client, keys[:1], 4096)
    reservation = await client.reserve(keys, LAYOUT, 4096)
    try:
        assert reservation.present == {0}
        assert set(reservation.slots) == {1}
        assert client.reservations == 1
    finally:
        await reservation.aclose()
    assert client.reservations == 0


async def test_the_first_commit_wins_and_both_are_readable(client: KvStoreClient) -> None:
    keys = keys_of(1)
    one = await client.reserve(keys, LAYOUT, 4096)
    two = await client.reserve(keys, LAYOUT, 4096)
    try:
        one.slots[0][:] = block(1, 4096)
        two.slots[0][:] = block(2, 4096)
        assert await two.commit([0]) == 1
        assert await one.commit([0]) == 1
    finally:
        await one.aclose()
        await two.aclose()
    assert (await get(client, keys, 4096))[0] == {0: block(2, 4096)}


async def test_a_full_arena_refuses_and_never_blocks(
    client: KvStoreClient, store: RunningStore
) -> None:
    # 16 MiB arena: at most 8 MiB may be leased and reserved.
    keys = keys_of(12)
    reservation = await client.reserve(keys, LAYOUT, MIB)
    try:
        assert set(reservation.slots) == set(range(8))
        assert reservation.exhausted == {8, 9, 10, 11}
    finally:
        await reservation.aclose()
    assert await put(client, keys[:8], MIB) == 8


async def test_closing_a_fetch_early_gives_all_leases_back(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(5)
    fetching = client.fetch([*keys, *keys_of(1, "never")], LAYOUT, 4096, wait=30)
    await put(client, keys, 4096)
    await anext(fetching)
    assert stat(store.store).leases == 5
    assert client.leases == 5
    await fetching.aclose()
    await store.at_baseline(1)
    assert client.leases == 0


@pytest.mark.parametrize(("transport", "quarantined"), [("shm", 2), ("grpc", 0)])
async def test_a_client_that_goes_gives_everything_back(
    store: RunningStore, transport: str, quarantined: int
) -> None:
    async with connected(store.address, transport) as client:
        fetching = client.fetch(keys_of(4), LAYOUT, 4096, wait=30)
        await put(client, keys_of(3), 4096)
        await anext(fetching)
        reservation = await client.reserve(keys_of(2, "mine"), LAYOUT, 4096)
        assert (client.leases, client.reservations) == (3, 2)
        assert store.counts()[:2] == (3, 2)
    await eventually(lambda: stat(store.store).sessions == 0, 1)
    # Its process still has views of shared slots: those are given to nobody else yet.
    assert store.counts() == (0, 0, quarantined, 0, 0)
    await reservation.aclose()
    await store.at_baseline(1)


async def test_one_reader_of_many_cancels_and_the_others_lose_nothing(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(4)
    readers = [asyncio.create_task(get(client, keys, 4096, wait=10)) for _ in range(50)]
    await eventually(lambda: stat(store.store).waiters == 50)
    readers[7].cancel()
    await put(client, keys, 4096)
    for number, reader in enumerate(readers):
        if number != 7:
            found, missing = await reader
            assert (len(found), missing) == (4, set())
    await store.at_baseline(1)


async def test_waiting_readers_get_more_than_the_cap_through_a_small_arena(
    client: KvStoreClient, store: RunningStore
) -> None:
    # 40 MiB through an arena of 16 with 8 to hold: leases must flow back for writers to go on.
    keys = keys_of(40)
    readers = [asyncio.create_task(get(client, keys, MIB, wait=20)) for _ in range(3)]
    await eventually(lambda: stat(store.store).waiters == 3)
    for index, key in enumerate(keys):
        async with within(10):
            while await put(client, [key], MIB, first=index) == 0:
                await asyncio.sleep(0.005)
    for reader in readers:
        found, missing = await reader
        # What was evicted before a slow reader came to it may be missing, never wrong.
        assert all(data == block(index, MIB) for index, data in found.items())
        assert set(found) | missing == set(range(40))
        assert len(found) >= 16


async def test_bad_requests_are_refused_by_name(client: KvStoreClient, store: RunningStore) -> None:
    for keys, layout, size in [
        ([], LAYOUT, 4096),
        ([b"short"], LAYOUT, 4096),
        (keys_of(1), b"layout", 4096),
        (keys_of(1), LAYOUT, 0),
        (keys_of(1), LAYOUT, -1),
        (keys_of(4097), LAYOUT, 4096),
    ]:
        with pytest.raises(BatonError) as caught:
            await client.reserve(keys, layout, size)
        assert caught.value.reason is Reason.INVALID_FIELD
    assert await put(client, keys_of(1), 4096) == 1  # the stream goes on
