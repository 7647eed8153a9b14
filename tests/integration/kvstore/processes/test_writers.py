"""Writers that die or freeze: nothing torn is readable, and no slot is in two hands."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from baton.kv.client.client import KvStoreClient
from services.kvstore.api.admin import stat
from tests.support.clock import within
from tests.support.processes.freeze import freeze
from tests.support.processes.launcher import Launcher, Piped
from tests.support.stores import RunningStore, block, connected, get, keys_of, put, running_store
from tests.support.wait import eventually

WRITER = Path(__file__).parent / "writer.py"
SIZE = 64 * 1024


Writing = Callable[[RunningStore, list[bytes]], AbstractAsyncContextManager[Piped]]


@pytest.fixture
def writing(launcher: Launcher) -> Writing:
    """A writer's process that has reserved every key and written half of each object."""

    @asynccontextmanager
    async def write(store: RunningStore, keys: list[bytes]) -> AsyncIterator[Piped]:
        arguments = [str(WRITER), store.address, str(SIZE), *(key.hex() for key in keys)]
        writer = await launcher.launch_piped(arguments, os.environ)
        try:
            async with within(20):
                assert await writer.line() == f"reserved {len(keys)}"
            yield writer
        finally:
            writer.close()

    return write


async def fill(client: KvStoreClient, rounds: int) -> None:
    """Write several times what the arena holds, so that every place that is free is used."""
    for number in range(rounds):
        assert await put(client, keys_of(64, f"f{number}"), SIZE) == 64


async def test_a_writer_killed_while_it_writes_leaves_nothing_readable(
    store: RunningStore, writing: Writing
) -> None:
    keys = keys_of(4)
    async with connected(store.address, "shm") as client:
        getting = asyncio.create_task(get(client, keys, SIZE, wait=1))
        async with writing(store, keys) as writer:
            assert stat(store.store).reservations == 4
            writer.process.kill()
            # The dead writer's lock is free: its slots may be used again at once.
            await store_without_slots(store)
        assert await getting == ({}, {0, 1, 2, 3})
        await fill(client, 6)
        assert await put(client, keys, SIZE) == 4
        found, _ = await get(client, keys, SIZE)
        assert found == {index: block(index, SIZE) for index in range(4)}
    assert stat(store.store).bad_objects == 0
    assert not list(store.store.arena.path.parent.glob("*.writer"))


async def store_without_slots(store: RunningStore) -> None:
    """Wait until nothing is reserved or in quarantine."""
    await eventually(lambda: store.counts()[1:3] == (0, 0), 2)


async def test_slots_of_a_frozen_writer_are_given_to_nobody(
    tmp_path: Path, writing: Writing
) -> None:
    async with (
        running_store(tmp_path, reservation_seconds=0.5) as store,
        connected(store.address, "shm") as client,
    ):
        async with writing(store, keys_of(4)) as writer:
            freeze(writer.process.pid)
            await eventually(lambda: store.counts()[1:3] == (0, 4))
            await fill(client, 6)
            assert stat(store.store).quarantined == 4
            writer.process.send_signal(signal.SIGCONT)
            # It thaws, writes on into its slots and commits: too late, and nobody was hurt.
            writer.say("commit")
            async with within(20):
                assert await writer.line() == "readable 0"
            await store_without_slots(store)
        found, missing = await get(client, keys_of(64, "f5"), SIZE)
        assert found == {index: block(index, SIZE) for index in range(64)}
        assert missing == set()
        await store.at_baseline()


async def test_slots_of_a_frozen_writer_come_back_once_it_is_killed(
    tmp_path: Path, writing: Writing
) -> None:
    async with running_store(tmp_path, reservation_seconds=0.3) as store:
        async with writing(store, keys_of(4)) as writer:
            freeze(writer.process.pid)
            await eventually(lambda: store.counts()[1:3] == (0, 4))
            writer.process.kill()
            await store_without_slots(store)
        await store.at_baseline()
