"""The disk tier: what memory has no room for comes back, whole or not at all."""

import asyncio
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2
from baton.kv.events.replica import BlockReplica
from baton.kv.keys import KEY_BYTES
from baton.kv.objects import ObjectId
from services.kvstore.api import admin
from services.kvstore.disk import load, spill
from services.kvstore.memory.slot import Lease
from services.kvstore.reads.read_request import ReadRequest, ReadResult
from services.kvstore.store import Store
from tests.integration.kvstore.disk.objects import (
    DISK,
    DRAM,
    SIZE,
    announced_rightly,
    fill,
    held,
    in_tiers,
    right,
    still,
)
from tests.support.clock import within
from tests.support.stores import LAYOUT, MIB, block, connected, get, keys_of, put, running_store
from tests.support.wait import eventually


async def test_what_memory_has_no_room_for_comes_back_from_disk(tmp_path: Path) -> None:
    async with running_store(tmp_path, 8 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 320)  # 20 MiB
            await still(running)
            announced_rightly(running.store)
            assert running.store.disk is not None
            assert running.store.events.spilled > 100
            # Lookup speaks of the store, not of a tier.
            assert all(await client.lookup(keys_of(320), LAYOUT))
            found, missing = await get(client, keys_of(320), SIZE)
            assert not missing
            assert len(found) == 320
            assert right(found)
            await still(running)
            announced_rightly(running.store)
            below = admin.stat(running.store).tiers[1]
            assert below.objects > 190
            assert below.used_bytes == below.objects * SIZE
        await running.at_baseline()


async def test_small_blocks_are_read_many_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, count = 8 * 1024, 1024
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, count, size=size)
            assert running.store.disk is not None
            file, runs = running.store.disk._file, []
            really = file.read

            def read(offset: int, slots: list[memoryview], slot_bytes: int) -> None:
                runs.append(len(slots))
                really(offset, slots, slot_bytes)

            monkeypatch.setattr(file, "read", read)
            below = sum(key in in_tiers(running.store)[1] for key in keys_of(count))
            found, missing = await get(client, keys_of(count), size)
            assert not missing
            assert all(data == block(index, size) for index, data in found.items())
            assert below > 500
            assert len(runs) < below / 8  # it was a read per block
        await running.at_baseline()


async def test_slots_that_leave_much_of_memory_unused_reach_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three slots of 600 KiB in two slabs: an eighth of memory is never anybody's. It is no room.
    size = 600 * 1024
    monkeypatch.setattr(spill, "MAX_HEADROOM_BYTES", MIB)  # as small a part as in 8 GiB
    async with (
        running_store(tmp_path, 16 * MIB, disk_path=tmp_path / "disk") as running,
        connected(running.address, "shm") as client,
    ):
        keys = keys_of(60)
        for number, key in enumerate(keys):
            assert await put(client, [key], size, first=number) == 1
            await still(running)
        assert all(await client.lookup(keys, LAYOUT))
        found, missing = await get(client, keys, size)
        assert not missing
        assert found == {number: block(number, size) for number in range(60)}


async def test_a_read_that_waits_gets_what_lies_on_disk(tmp_path: Path) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "grpc") as client:
            await fill(running, client, 120)
            found, missing = await get(client, keys_of(120), SIZE, wait=20)
            assert not missing
            assert right(found)
        await running.at_baseline()


class AtOnce:
    """Releases what it is leased in the same turn."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.count = 0
        self.done = asyncio.Event()

    def deliver(self, request: ReadRequest, result: ReadResult) -> None:
        self.count += len(result.ready)
        for _, lease in result.ready:
            self.store.waits.release(lease)
        if result.done:
            self.done.set()

    def lease_expired(self, request: ReadRequest, lease: Lease) -> None:
        raise AssertionError("it is released at once")


async def test_what_was_read_at_once_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "FRESH_SECONDS", 3600)
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 120)
            await still(running)
        store = running.store
        ids = [ObjectId(LAYOUT, key) for key in keys_of(120)]
        below = [one for one in ids if store.table.get(one) is None]
        reader = AtOnce(store)
        request = ReadRequest(reader, 1, below, store.clock() + 60, instant=True)
        store.waits.add(request, store.clock())
        store.flush()
        async with within(30):
            await reader.done.wait()
        assert reader.count == len(below) > 60


async def test_subscribers_see_blocks_move_between_tiers(tmp_path: Path) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        log, mirror, moved = running.store.log, BlockReplica(), set()
        subscription = log.subscribe("", 0, lambda: None)
        async with connected(running.address, "shm") as client:
            await fill(running, client, 120)
            await get(client, keys_of(20), SIZE)
            await still(running)
        log.flush()
        while (message := subscription.take()) is not None:
            mirror.apply(message)
            moved |= {e.tier_moved.tier for e in message.events.events if e.HasField("tier_moved")}
        assert moved == {DRAM, DISK}
        assert mirror.held == log.contents()
        announced_rightly(running.store)


async def test_a_tenant_that_has_no_room_in_memory_does_not_hold_up_others(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path) as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 20, salt="small", tenant="small")
        await fill(running, client, 20, salt="other", tenant="other")
        tier = running.store.disk
        assert tier is not None
        tier._spiller._headroom = 4 * MIB  # as if all of memory were needed for something else
        await eventually(lambda: not running.store.table.objects())
    small, other = keys_of(20, "small"), keys_of(20, "other")
    # After a restart memory is empty, and the quota of one tenant has room for nothing.
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path, quotas={"small": 4096}) as running,
        connected(running.address, "shm") as client,
        connected(running.address, "shm") as second,
    ):
        waiting = asyncio.create_task(get(client, small, SIZE, wait=1))
        await eventually(lambda: admin.stat(running.store).waiters == 1)
        async with within(2):
            found, missing = await get(second, other, SIZE, wait=30)
        assert (len(found), missing) == (20, set())
        assert right(found)
        assert (await waiting)[1] == set(range(20))
        await running.at_baseline()


async def test_a_disk_smaller_than_what_comes_keeps_the_latest(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_bytes=4 * MIB) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 320)
            await still(running)
            announced_rightly(running.store)
            above, below = in_tiers(running.store)
            # How many of them both tiers hold depends on when the disk was done with a batch.
            assert len(above | below) > max(len(above), len(below)) > 50
            latest = keys_of(320)[-50:]
            assert set(latest) <= above | below
            found, missing = await get(client, latest, SIZE)
            assert not missing
            assert all(data == block(270 + index, SIZE) for index, data in found.items())
        assert running.store.disk is not None
        assert running.store.disk.index.used_bytes <= 4 * MIB
        await running.at_baseline()


async def test_a_flood_takes_nothing_on_disk_that_is_anothers_share(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_bytes=8 * MIB) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 60, tenant="quiet")
            await fill(running, client, 240, salt="flood")
            await still(running)
            found, missing = await get(client, keys_of(60), SIZE)
            assert not missing
            assert right(found)
        await running.at_baseline()


async def test_dropping_forgets_every_tier(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
            await still(running)
            request = kvstore_pb2.DropRequest(keys=b"".join(keys_of(100)))
            assert admin.drop_objects(running.store, request).dropped == 100
            running.store.flush()
            assert held(running.store) == {}
            assert await get(client, keys_of(100), SIZE) == ({}, set(range(100)))
        await still(running)
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        assert held(running.store) == {}
    assert KEY_BYTES == 16
