"""Wrong bytes are noticed by the reader, reported, dropped, and written anew."""

import asyncio
import secrets
from pathlib import Path

import pytest

from baton.kv.client.client import KvStoreClient
from services.kvstore.api.admin import stat
from tests.support.stores import LAYOUT, RunningStore, block, connected, get, keys_of, put
from tests.support.wait import eventually

SIZE = 64 * 1024


def overwrite(store: RunningStore, find: bytes, at: int, data: bytes) -> None:
    """Change the arena's file behind everybody's back, within the object that holds `find`."""
    with store.store.arena.path.open("r+b") as file:
        file.seek(file.read().index(find) + at)
        file.write(data)


async def test_a_flipped_bit_is_noticed_and_the_object_dropped(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(3)
    await put(client, keys, SIZE)
    byte = block(1, SIZE)[777]
    overwrite(store, block(1, SIZE), 777, bytes([byte ^ 4]))
    found, missing = await get(client, keys, SIZE)
    assert (set(found), missing) == ({0, 2}, {1})
    await store.at_baseline()
    assert stat(store.store).bad_objects == 1
    assert stat(store.store).objects == 2
    assert await put(client, keys, SIZE) == 3  # written anew
    assert await get(client, keys, SIZE) == ({i: block(i, SIZE) for i in range(3)}, set())


async def test_a_valid_block_under_another_key_is_noticed(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(2)
    await put(client, keys, SIZE)
    overwrite(store, block(1, SIZE), 0, block(0, SIZE))
    found, missing = await get(client, keys, SIZE)
    assert (set(found), missing) == ({0}, {1})


async def test_every_one_of_many_random_changes_is_noticed(store: RunningStore) -> None:
    keys = keys_of(100)
    blocks = [secrets.token_bytes(SIZE) for _ in keys]
    async with connected(store.address, "shm") as client:
        reservation = await client.reserve(keys, LAYOUT, SIZE)
        for index, view in reservation.slots.items():
            view[:] = blocks[index]
        assert await reservation.commit(range(100)) == 100
        await reservation.aclose()
        for index in range(0, 100, 2):
            at = secrets.randbelow(SIZE)
            overwrite(store, blocks[index], at, bytes([blocks[index][at] ^ (1 << at % 8)]))
        found, missing = await get(client, keys, SIZE)
        assert missing == set(range(0, 100, 2))
        assert all(data == blocks[index] for index, data in found.items())
        await eventually(lambda: stat(store.store).bad_objects == 50)


async def test_bytes_that_changed_after_they_were_sealed_are_noticed(store: RunningStore) -> None:
    keys = keys_of(3)
    async with connected(store.address, "shm") as client:
        reservation = await client.reserve(keys, LAYOUT, SIZE)
        for index, view in reservation.slots.items():
            view[:] = block(index, SIZE)
        await asyncio.to_thread(reservation.seal, 0)
        await asyncio.to_thread(reservation.seal, 1)
        reservation.slots[1][5] ^= 1
        assert await reservation.commit(range(3)) == 3  # the third one is sealed here
        await reservation.aclose()
        found, missing = await get(client, keys, SIZE)
        assert (found, missing) == ({0: block(0, SIZE), 2: block(2, SIZE)}, {1})


async def test_a_slot_that_changed_hands_while_it_was_copied_is_noticed(
    store: RunningStore,
) -> None:
    keys = keys_of(1)
    async with connected(store.address, "shm") as client:
        await put(client, keys, SIZE)
        fetching = client.fetch(keys, LAYOUT, SIZE)
        (fetched,) = await anext(fetching)
        copy = bytearray(fetched.nbytes)
        assert fetched.copy_to(memoryview(copy))
        # As if the lease had lapsed and another writer had got the place.
        slot = store.store.table.get(next(iter(store.store.table.slots())).object_id)
        assert slot is not None
        store.store.arena.carve(slot.offset, slot.slot_bytes)
        assert not fetched.copy_to(memoryview(copy))
        await fetching.aclose()
        assert fetching.missing == {0}


async def test_an_object_of_another_length_is_not_taken(
    client: KvStoreClient, store: RunningStore
) -> None:
    keys = keys_of(1)
    await put(client, keys, SIZE)
    assert await get(client, keys, SIZE // 2) == ({}, {0})
    await store.at_baseline()
    assert await put(client, keys, SIZE // 2) == 1
    assert (await get(client, keys, SIZE // 2))[1] == set()


@pytest.mark.parametrize("content", [b"", b"baton", b"x" * 100_000])
async def test_a_file_that_is_no_arena_means_grpc(
    store: RunningStore, tmp_path: Path, content: bytes
) -> None:
    path = store.store.arena.path
    kept = path.rename(tmp_path / "kept")
    path.write_bytes(content)
    try:
        async with connected(store.address) as client:
            assert client.transport == "grpc"
            await put(client, keys_of(1), SIZE)
            assert (await get(client, keys_of(1), SIZE))[1] == set()
    finally:
        kept.rename(path)


async def test_another_arena_at_the_same_path_means_grpc(
    store: RunningStore, tmp_path: Path
) -> None:
    # As in another mount namespace: a right file, and not the store's.
    path = store.store.arena.path
    data = bytearray(path.read_bytes())
    at = data.index(store.store.arena.header.secret)
    data[at : at + 16] = bytes(16)
    kept = path.rename(tmp_path / "kept")
    path.write_bytes(data)
    try:
        async with connected(store.address) as client:
            assert client.transport == "grpc"
            await put(client, keys_of(1), SIZE)
    finally:
        kept.rename(path)
