"""Stores that fetch from each other."""

import asyncio
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.settings.transports import GRPC, NIXL
from services.kvstore.api.admin import stat
from tests.integration.kvstore.peers.pair import SIZE, Pair
from tests.support.clock import Stopwatch, within
from tests.support.stores import (
    LAYOUT,
    MIB,
    block,
    connected,
    get,
    keys_of,
    needs_nixl,
    put,
    running_store,
)
from tests.support.wait import eventually


@pytest.mark.parametrize("size", [4096, SIZE, 3 * MIB + 7])
async def test_without_a_wait_the_sources_give_what_they_have(pair: Pair, size: int) -> None:
    keys = keys_of(2)
    await put(pair.at_a, keys[:1], size)
    found, missing = await get(pair.at_b, keys, size, 0, [pair.a.source])
    assert found == {0: block(0, size)}
    assert missing == {1}
    assert stat(pair.b.store).objects == 1  # kept: the next reader finds it here
    assert await get(pair.at_b, keys[:1], size) == (found, set())


async def test_what_a_peer_commits_later_comes_too(pair: Pair) -> None:
    keys = keys_of(20)
    getting = asyncio.create_task(get(pair.at_b, keys, SIZE, 20, [pair.a.source]))
    await eventually(lambda: stat(pair.a.store).waiters)
    assert stat(pair.a.store).leases == stat(pair.b.store).leases == 0
    for at in range(0, 20, 5):
        await put(pair.at_a, keys[at : at + 5], SIZE, first=at)
    found, missing = await getting
    assert (found, missing) == ({i: block(i, SIZE) for i in range(20)}, set())
    pair.assert_moved(20 * SIZE)


async def test_will_not_come_is_told_across_stores(pair: Pair) -> None:
    keys = keys_of(3)
    getting = asyncio.create_task(get(pair.at_b, keys, SIZE, 30, [pair.a.source]))
    await eventually(lambda: stat(pair.a.store).waiters)
    await put(pair.at_a, keys[:1], SIZE)
    await pair.at_a.will_not_come(keys[1:], LAYOUT)
    async with within(3):
        found, missing = await getting
    assert (set(found), missing) == ({0}, {1, 2})


async def test_many_reads_need_one_stream_and_one_transfer(pair: Pair) -> None:
    keys = keys_of(8)
    readers = [
        asyncio.create_task(get(pair.at_b, keys, SIZE, 20, [pair.a.source])) for _ in range(40)
    ]
    await eventually(lambda: stat(pair.b.store).waiters == 40)
    await eventually(lambda: stat(pair.a.store).waiters == 1)
    await put(pair.at_a, keys, SIZE)
    for reader in readers:
        found, missing = await reader
        assert (len(found), missing) == (8, set())
    pair.assert_moved(8 * SIZE)
    assert stat(pair.a.store).sessions == 3  # the client's Get and Put, and one Get of B


async def test_a_reader_that_goes_ends_the_wait_at_the_peer(pair: Pair) -> None:
    async with connected(pair.b.address, "shm") as client:
        fetching = client.fetch(keys_of(3), LAYOUT, SIZE, [pair.a.source], wait=30)
        await eventually(lambda: stat(pair.a.store).waiters)
        del fetching
    await pair.b.at_baseline(1)
    await pair.a.at_baseline(1)


async def test_a_writer_at_home_is_as_good_as_a_source(pair: Pair) -> None:
    keys = keys_of(2)
    getting = asyncio.create_task(get(pair.at_b, keys, SIZE, 20, [pair.a.source]))
    await eventually(lambda: stat(pair.a.store).waiters)
    await put(pair.at_b, keys, SIZE)
    assert (await getting)[1] == set()
    pair.assert_moved(0)


async def test_a_peer_whose_object_is_bad_drops_it(pair: Pair) -> None:
    keys = keys_of(2)
    await put(pair.at_a, keys, SIZE)
    slot = pair.a.store.table.slots()[1]
    pair.a.store.arena.view(slot)[100] ^= 1
    found, missing = await get(pair.at_b, keys, SIZE, 0, [pair.a.source])
    assert len(found) == len(missing) == 1
    assert stat(pair.a.store).bad_objects == 1
    assert stat(pair.b.store).objects == 1  # nothing wrong was kept


@pytest.mark.parametrize(
    ("pair", "where"),
    [(GRPC, "nowhere"), pytest.param(NIXL, "another store", marks=needs_nixl)],
    indirect=["pair"],
)
async def test_a_source_that_is_not_there_keeps_nobody_longer_than_the_wait(
    pair: Pair, where: str
) -> None:
    address = "127.0.0.1:1" if where == "nowhere" else pair.a.address
    gone = pb.KvSource(store_id="gone", address=address)
    await put(pair.at_a, keys_of(1), SIZE)
    async with within(4):
        assert await get(pair.at_b, keys_of(1), SIZE, 0, [gone]) == ({}, {0})
    watch = Stopwatch()
    assert await get(pair.at_b, keys_of(1), SIZE, 0.2, [gone]) == ({}, {0})
    assert watch.elapsed > 0.15
    assert watch.seconds < 3
    # Beside a good source it does no harm.
    assert (await get(pair.at_b, keys_of(1), SIZE, 5, [gone, pair.a.source]))[1] == set()


async def test_a_peer_that_restarts_at_its_address_is_asked_again(
    pair: Pair, tmp_path: Path
) -> None:
    (tmp_path / "c").mkdir()
    async with running_store(tmp_path / "c", store_id="c") as first:
        source = first.source
        getting = asyncio.create_task(get(pair.at_b, keys_of(3), SIZE, 20, [source]))
        await eventually(lambda: stat(first.store).waiters)
    port = int(source.address.rpartition(":")[2])
    async with running_store(tmp_path / "c", store_id="c", port=port) as second:
        await eventually(lambda: stat(second.store).waiters)
        async with connected(second.address) as writer:
            await put(writer, keys_of(3), SIZE)
        assert (await getting)[1] == set()


async def test_more_than_fits_comes_through_piece_by_piece(pair: Pair) -> None:
    # 12 MiB from an arena of 16 into another, of which half may be held at a time.
    keys = keys_of(12)
    for at in range(0, 12, 6):
        await put(pair.at_a, keys[at : at + 6], MIB, first=at)
    found, missing = await get(pair.at_b, keys, MIB, 10, [pair.a.source])
    assert found == {i: block(i, MIB) for i in range(12)}
    assert missing == set()
    pair.assert_moved(12 * MIB)
