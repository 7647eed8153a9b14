"""What lies on disk outlives its store, whole or not at all."""

import os
from pathlib import Path

from services.kvstore.disk.file import GRANULE_BYTES, PAGE_BYTES, RECORD_BYTES
from tests.integration.kvstore.disk.objects import DISK, SIZE, fill, held, in_tiers, right, still
from tests.support.stores import (
    MIB,
    connected,
    get,
    keys_of,
    running_store,
)


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
        await running.at_baseline()


async def test_a_flipped_bit_on_disk_is_never_served(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
        await still(running)
        assert running.store.disk is not None
        entries = running.store.disk.index.entries()
        data_at = running.store.disk._file._data_at
    flipped = {e.object_id.key for e in entries[::2]}
    with path.open("r+b") as file:
        for number, entry in enumerate(entries[::2]):
            at = data_at + entry.offset + number * 997 % entry.object_bytes
            byte = os.pread(file.fileno(), 1, at)[0]
            os.pwrite(file.fileno(), bytes([byte ^ (1 << number % 8)]), at)
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
        assert running.store.disk is not None
        async with connected(running.address, "shm") as client:
            found, missing = await get(client, keys_of(100), SIZE)
        assert right(found)
        assert flipped <= {keys_of(100)[index] for index in missing}
        assert {keys_of(100)[index] for index in found} == {
            e.object_id.key for e in entries
        } - flipped
        assert running.store.disk.counts.bad_objects == len(flipped)
        assert not flipped & held(running.store).get(DISK, set())
        await running.at_baseline()


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


async def test_a_file_of_another_version_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    async with (
        running_store(tmp_path, 4 * MIB, disk_path=path) as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 100)
        await still(running)
        assert held(running.store)[DISK]
    with path.open("r+b") as file:
        version = os.pread(file.fileno(), 1, 8)[0]  # behind the magic
        os.pwrite(file.fileno(), bytes([version - 1]), 8)
    async with running_store(tmp_path, 4 * MIB, disk_path=path) as running:
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
