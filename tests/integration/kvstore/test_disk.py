"""The disk tier: what memory has no room for comes back, whole or not at all."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest

from baton.internal.v1 import kvevents_pb2, kvstore_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.events.log import BlockReplica
from baton.kv.keys import KEY_BYTES
from baton.kv.objects import ObjectId
from services.kvstore.api import admin
from services.kvstore.disk import codecs, spill
from services.kvstore.disk import tier as disk_tier
from services.kvstore.disk.codecs import NAMES, NONE
from services.kvstore.disk.file import GRANULE_BYTES, PAGE_BYTES, RECORD_BYTES, DiskFile
from services.kvstore.store import Store
from tests.integration.kvstore.conftest import (
    LAYOUT,
    MIB,
    RunningStore,
    block,
    connected,
    eventually,
    get,
    keys_of,
    put,
    running_store,
)

SIZE = 64 * 1024
DRAM, DISK = kvevents_pb2.TIER_DRAM, kvevents_pb2.TIER_DISK


async def fill(
    running: RunningStore, client: KvStoreClient, count: int, salt: str = "", tenant: str = ""
) -> None:
    """Write blocks no faster than the disk takes them."""
    batch = 4
    for first in range(0, count, batch):
        keys = keys_of(count, salt)[first : first + batch]
        reservation = await client.reserve(keys, LAYOUT, SIZE, tenant=tenant)
        try:
            for index, view in reservation.slots.items():
                view[:] = block(first + index, SIZE)
            assert await reservation.commit(sorted(reservation.slots)) == len(keys)
        finally:
            await reservation.aclose()
        await still(running)


def right(found: dict[int, bytes]) -> bool:
    return all(data == block(index, SIZE) for index, data in found.items())


def held(store: Store) -> dict[int, set[bytes]]:
    """Keys by tier, as announced."""
    store.log.flush()
    return {tier: keys for (_, tier), keys in store.log.contents().items()}


def in_tiers(store: Store) -> tuple[set[bytes], set[bytes]]:
    assert store.disk is not None
    above = {slot.object_id.key for slot in store.table.objects()}
    return above, {e.object_id.key for e in store.disk.index.entries() if e.readable}


def announced_rightly(store: Store) -> None:
    above, below = in_tiers(store)
    assert held(store).get(DRAM, set()) == above
    assert held(store).get(DISK, set()) == below - above


async def still(running: RunningStore) -> None:
    """Wait until nothing moves."""
    tier = running.store.disk
    assert tier is not None

    def is_idle() -> bool:
        running.store.flush()  # the next batch begins, if there is one
        return bool(tier.failed) or not tier.busy

    await eventually(is_idle)


@pytest.mark.parametrize("codec", NAMES)
async def test_what_memory_has_no_room_for_comes_back_from_disk(tmp_path: Path, codec: str) -> None:
    async with running_store(
        tmp_path, 8 * MIB, disk_path=tmp_path / "disk", disk_codec=codec
    ) as running:
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
            # What repeats itself takes one granule for the four that it has.
            assert below.used_bytes == below.objects * (SIZE if codec == NONE else GRANULE_BYTES)
        await running.quiet()


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
        await running.quiet()


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


async def test_a_restart_finds_what_lies_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 160)
        await still(running)
        _, below = in_tiers(running.store)
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        assert held(running.store) == {DISK: below}
        async with connected(running.address, "shm") as client:
            found, _ = await get(client, keys_of(160), SIZE)
            assert {keys_of(160)[index] for index in found} == below
            assert right(found)
            await fill(running, client, 160, salt="new")  # goes where allocator and index agree
            again, _ = await get(client, keys_of(160, "new"), SIZE)
            assert right(again)
        await running.quiet()


@pytest.mark.parametrize("names", list(itertools.permutations(NAMES, 2)))
async def test_a_restart_with_another_codec_reads_what_lies_on_disk(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec=names[0]) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
        _, below = in_tiers(running.store)
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec=names[1]) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100, salt="new")
            found, _ = await get(client, keys_of(100), SIZE)
            assert {keys_of(100)[index] for index in found} == below
            assert right(found)
            again, _ = await get(client, keys_of(100, "new"), SIZE)
            assert len(again) > 50
            assert right(again)
        await running.quiet()


async def test_what_no_codec_here_can_read_is_not_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "disk"
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec="lz4") as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 100)
    with monkeypatch.context() as patch:
        patch.setattr(codecs, "is_installed", lambda name: name != "lz4")
        async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
            assert held(running.store) == {}
    # Nor later: the records are gone.
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec="lz4") as running:
        assert held(running.store) == {}


@pytest.mark.parametrize("codec", NAMES)
async def test_a_flipped_bit_on_disk_is_never_served(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec=codec) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
        await still(running)
        assert running.store.disk is not None
        entries = running.store.disk.index.entries()
        data_at = running.store.disk._file._data_at
    flipped = {e.object_id.key for e in entries[::2]}
    with path.open("r+b") as file:
        for number, entry in enumerate(entries[::2]):
            at = data_at + entry.offset + number * 997 % entry.stored_bytes
            byte = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([byte ^ (1 << number % 8)]), at)
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_codec=codec) as running:
        assert running.store.disk is not None
        async with connected(running.address, "shm") as client:
            found, missing = await get(client, keys_of(100), SIZE)
        assert right(found)
        # A few bits of a code say nothing: what comes of it is whole all the same.
        whole = flipped & {keys_of(100)[index] for index in found}
        assert len(whole) <= (0 if codec == NONE else len(flipped) // 4)
        flipped -= whole
        assert flipped <= {keys_of(100)[index] for index in missing}
        assert {keys_of(100)[index] for index in found} == {
            e.object_id.key for e in entries
        } - flipped
        assert running.store.disk.counts.bad_objects == len(flipped)
        assert not flipped & held(running.store).get(DISK, set())
        await running.quiet()


async def test_broken_records_are_not_taken_in(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
        await still(running)
        assert running.store.disk is not None
        entries = sorted(running.store.disk.index.entries(), key=lambda e: e.offset)
    with path.open("r+b") as file:

        def record(offset: int) -> int:
            return PAGE_BYTES + offset // GRANULE_BYTES * RECORD_BYTES

        first, second, third = (record(e.offset) for e in entries[:3])
        os.pwrite(file.fileno(), b"\xff", first + 17)  # a bit of the key
        whole = os.pread(file.fileno(), RECORD_BYTES, third)
        os.pwrite(file.fileno(), whole, second)  # a record that belongs elsewhere
        os.pwrite(file.fileno(), whole, record(entries[3].offset + GRANULE_BYTES))
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        assert held(running.store)[DISK] == {e.object_id.key for e in entries[2:]}


async def test_a_file_of_another_size_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path) as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 100)
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_bytes=8 * MIB) as running:
        assert held(running.store) == {}


async def test_two_stores_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    (tmp_path / "b").mkdir()
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path) as one,
        running_store(tmp_path / "b", 4 * MIB, disk_path=path) as two,
    ):
        assert one.store.disk is not None
        assert two.store.disk is None
        assert two.store.disk_failed


class Breaking:
    """Makes a disk's file fail, or hang, from now on."""

    def __init__(self, running: RunningStore, monkeypatch: pytest.MonkeyPatch) -> None:
        assert running.store.disk is not None
        self._file: DiskFile = running.store.disk._file
        self._patch = monkeypatch

    def fail(self, name: str, error: Exception) -> None:
        def broken(*_: object) -> None:
            raise error

        self._patch.setattr(self._file, name, broken)


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), MemoryError("no room to decode")]
)
@pytest.mark.parametrize("way", ["clear", "write", "read"])
async def test_a_failing_disk_leaves_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, error: Exception
) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
            Breaking(running, monkeypatch).fail(way, error)
            for number in range(12):
                await fill(running, client, 16, salt=f"f{number}")
                found, _ = await get(client, keys_of(100)[number * 5 : number * 5 + 5], SIZE)
                assert all(data == block(number * 5 + i, SIZE) for i, data in found.items())
                await asyncio.sleep(0.05)
                if way == "clear":
                    running.store.drop(ObjectId(LAYOUT, keys_of(100)[number]))
            await eventually(lambda: running.store.disk_failed)
            assert running.store.disk_failed == str(error)
            announced_rightly(running.store)
            assert DISK not in held(running.store)
            await fill(running, client, 32, salt="after")
            found, missing = await get(client, keys_of(32, "after"), SIZE)
            assert not missing
            assert right(found)
            assert admin.stat(running.store).tiers[1].failed
        await running.quiet(12)


async def test_a_disk_that_hangs_holds_nobody_up_and_writes_into_no_foreign_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_tier, "STALL_SECONDS", 0.5)
    async with running_store(
        tmp_path, 4 * MIB, disk_path=tmp_path / "disk", reservation_seconds=0.3
    ) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
            await still(running)
            tier = running.store.disk
            assert tier is not None
            hanging, free = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()
            really = tier._file.read

            def hang(offset: int, pages: memoryview) -> None:
                loop.call_soon_threadsafe(hanging.set)
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result()
                really(offset, pages)

            monkeypatch.setattr(tier._file, "read", hang)
            _, below = in_tiers(running.store)
            wanted = next(i for i, key in enumerate(keys_of(100)) if key in below)
            reading = asyncio.create_task(get(client, [keys_of(100)[wanted]], SIZE))
            await hanging.wait()
            (found, missing) = await reading
            assert (found, missing) == ({}, {0})
            assert running.store.disk_failed
            await eventually(lambda: admin.stat(running.store).quarantined == 1)
            await fill(running, client, 160, salt="meanwhile")
            before, _ = await get(client, keys_of(160, "meanwhile"), SIZE)
            free.set()
            await eventually(lambda: admin.stat(running.store).quarantined == 0)
            after, _ = await get(client, keys_of(160, "meanwhile"), SIZE)
            assert right(after)
            assert before.keys() == after.keys()
        await running.quiet()


async def test_objects_that_codecs_fail_on_leave_memory_and_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(
        tmp_path, 4 * MIB, disk_path=tmp_path / "disk", disk_codec=codecs.ZSTD
    ) as running:
        tier = running.store.disk
        assert tier is not None
        encode, failures = tier._spiller._context.codecs.encode, [MemoryError("no room to encode")]

        def fails_once(data: memoryview) -> bytes | None:
            if failures:
                raise failures.pop()
            return encode(data)

        monkeypatch.setattr(tier._spiller._context.codecs, "encode", fails_once)
        async with connected(running.address, "shm") as client:
            await fill(running, client, 160)
            await still(running)
            assert not failures
            assert (tier.counts.errors, running.store.disk_failed) == (1, "")
            assert sum(await client.lookup(keys_of(160), LAYOUT)) >= 159
            announced_rightly(running.store)
        await running.quiet()


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
        waiting = asyncio.create_task(get(client, small, SIZE, wait=4))
        await eventually(lambda: admin.stat(running.store).waiters == 1)
        async with asyncio.timeout(2):
            found, missing = await get(second, other, SIZE, wait=30)
        assert (len(found), missing) == (20, set())
        assert right(found)
        assert (await waiting)[1] == set(range(20))
        await running.quiet()


async def test_a_disk_smaller_than_what_comes_keeps_the_latest(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_bytes=4 * MIB) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 320)
            await still(running)
            announced_rightly(running.store)
            above, below = in_tiers(running.store)
            assert len(above | below) > 90
            latest = keys_of(320)[-50:]
            assert set(latest) <= above | below
            found, missing = await get(client, latest, SIZE)
            assert not missing
            assert all(data == block(270 + index, SIZE) for index, data in found.items())
        assert running.store.disk is not None
        assert running.store.disk.index.used_bytes <= 4 * MIB
        await running.quiet()


async def test_a_flood_takes_nothing_on_disk_that_is_anothers_share(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path, disk_bytes=8 * MIB) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 60, tenant="quiet")
            await fill(running, client, 480, salt="flood")
            await still(running)
            found, missing = await get(client, keys_of(60), SIZE)
            assert not missing
            assert right(found)
        await running.quiet()


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
