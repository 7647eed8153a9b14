"""A disk that fails, hangs or cannot be written to costs what lies on it, until it is well."""

import asyncio
import os
from pathlib import Path

import pytest

from baton.kv.objects import ObjectId
from services.kvstore.api import admin
from services.kvstore.disk.file import DiskFile, Record
from tests.integration.kvstore.disk.objects import (
    DISK,
    SIZE,
    announced_rightly,
    fill,
    held,
    in_tiers,
    right,
    still,
)
from tests.support.stores import (
    LAYOUT,
    MIB,
    RunningStore,
    block,
    connected,
    get,
    keys_of,
    running_store,
)
from tests.support.wait import eventually


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
    ("way", "error"),
    [
        ("clear", OSError(5, "Input/output error")),
        ("write", OSError(28, "No space left on device")),
        ("read", OSError(5, "Input/output error")),
        ("read", MemoryError("no room")),
    ],
)
async def test_a_failing_disk_leaves_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, error: Exception
) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
            Breaking(running, monkeypatch).fail(way, error)
            for number in range(12):
                if running.store.disk_failed:
                    break
                await fill(running, client, 16, salt=f"f{number}")
                found, _ = await get(client, keys_of(100)[number * 5 : number * 5 + 5], SIZE)
                assert all(data == block(number * 5 + i, SIZE) for i, data in found.items())
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
        await running.at_baseline(12)


async def test_a_disk_that_hangs_holds_nobody_up_and_writes_into_no_foreign_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(
        tmp_path,
        4 * MIB,
        disk_path=tmp_path / "disk",
        disk_stall_seconds=0.5,
        disk_retry_seconds=0.1,
        reservation_seconds=3,
    ) as running:
        async with connected(running.address, "shm") as client:
            await fill(running, client, 100)
            await still(running)
            tier = running.store.disk
            assert tier is not None
            hanging, free = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()
            really = tier._file.read

            def hang(offset: int, slots: list[memoryview], slot_bytes: int) -> None:
                loop.call_soon_threadsafe(hanging.set)
                asyncio.run_coroutine_threadsafe(free.wait(), loop).result()
                really(offset, slots, slot_bytes)

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
            await eventually(lambda: not running.store.disk_failed)
            announced_rightly(running.store)
            assert keys_of(100)[wanted] in in_tiers(running.store)[1]
        await running.at_baseline()


async def test_one_failed_write_costs_one_object_and_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        tier = running.store.disk
        assert tier is not None
        write, failures = tier._file.write, [MemoryError("no room")]

        def fails_once(record: Record, pages: memoryview) -> None:
            if failures:
                raise failures.pop()
            write(record, pages)

        monkeypatch.setattr(tier._file, "write", fails_once)
        async with connected(running.address, "shm") as client:
            await fill(running, client, 160)
            await still(running)
            assert not failures
            assert (tier.counts.errors, running.store.disk_failed) == (1, "")
            assert sum(await client.lookup(keys_of(160), LAYOUT)) >= 159
            announced_rightly(running.store)
        await running.at_baseline()


async def test_a_disk_that_failed_is_used_again_with_what_lies_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_store(
            tmp_path, 4 * MIB, disk_path=tmp_path / "disk", disk_retry_seconds=0.05
        ) as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 100)
        await still(running)
        _, below = in_tiers(running.store)
        first, opened = running.store.disk, []
        assert first is not None
        error = OSError(28, "No space left on device")
        with monkeypatch.context() as full:

            def refuse(*_: object) -> None:
                opened.append(1)
                raise error

            Breaking(running, full).fail("write", error)
            full.setattr(os, "posix_fallocate", refuse)
            for number in range(8):
                await fill(running, client, 16, salt=f"f{number}")
            assert running.store.disk_failed == str(error)
            await eventually(lambda: len(opened) > 2)
            gone = min(below)
            assert running.store.drop(ObjectId(LAYOUT, gone))
            assert DISK not in held(running.store)
        await eventually(lambda: not running.store.disk_failed)
        assert running.store.disk is not first
        announced_rightly(running.store)
        _, again = in_tiers(running.store)
        assert (again >= below - {gone}, gone in again) == (True, False)
        found, missing = await get(client, keys_of(100), SIZE)
        assert right(found)
        assert {keys_of(100)[index] for index in found} >= below - {gone}
        assert keys_of(100).index(gone) in missing
        await fill(running, client, 100, salt="after")
        await still(running)
        announced_rightly(running.store)
        assert running.store.disk.counts.errors == 3
        assert not running.store.disk_failed
        await running.at_baseline()


async def test_errors_now_and_then_switch_nothing_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        tier = running.store.disk
        assert tier is not None
        error = OSError(28, "No space left on device")
        for minute in range(10):
            tier._ended(error, 61.0 * minute)
            tier._ended(None, 61.0 * minute)
        assert (tier.counts.errors, running.store.disk_failed) == (10, "")
        for _ in range(2):
            tier._ended(error, 600.0)
        assert running.store.disk_failed == str(error)


async def test_a_pause_of_the_store_is_none_of_the_disks(tmp_path: Path) -> None:
    async with (
        running_store(
            tmp_path, 4 * MIB, disk_path=tmp_path / "disk", disk_stall_seconds=1
        ) as running,
        connected(running.address, "shm") as client,
    ):
        await fill(running, client, 100)
        await still(running)
        tier = running.store.disk
        assert tier is not None
        tier._spiller.busy_since = now = running.store.clock()
        tier.tick(now)
        tier.tick(now + 60)  # it stood still
        assert not running.store.disk_failed
        for tick in range(11):
            tier.tick(now + 60 + tick / 10)
        assert running.store.disk_failed
