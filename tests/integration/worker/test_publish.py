"""What goes wrong while KV is published costs the blocks that it happens to, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from baton.engine.base import BlockGoneError, Engine, EngineInfo
from baton.engine.factory import create_engine
from baton.kv.client.client import KvStoreClient
from baton.settings import EngineSettings
from baton.worker.kv.publish import BATCH_BLOCKS, KvPublisher, SequencePublish
from tests.support.clock import within
from tests.support.stores import (
    LAYOUT,
    MIB,
    RunningStore,
    connected,
    keys_of,
    running_store,
)

BLOCKS_PER_COPY = 4


@dataclass
class Pages:
    """As much of an engine as is asked when blocks are published."""

    info: EngineInfo
    trouble: Callable[[int], None] = field(default=lambda _: None)
    """Called with a block's index before it is read."""

    @property
    def scratch(self) -> memoryview:
        return memoryview(bytearray(BLOCKS_PER_COPY * self.info.block_bytes))

    def read_blocks(
        self, sequence_id: int, indexes: Sequence[int], out: Sequence[memoryview], group: int
    ) -> None:
        assert group == 0
        assert len(indexes) <= BLOCKS_PER_COPY
        for index, view in zip(indexes, out, strict=True):
            self.trouble(index)
            view[:] = bytes([index % 251]) * view.nbytes


@dataclass
class Rig:
    store: RunningStore
    pages: Pages
    publisher: KvPublisher
    reader: KvStoreClient
    running: asyncio.Task[None]

    async def publish(self, keys: list[bytes]) -> None:
        publishing = SequencePublish(1, "tenant")
        self.publisher.add(publishing, 0, keys, partial=False)
        async with within(10):
            await publishing.wait_done()

    async def waits_in_vain(self, keys: list[bytes]) -> set[int]:
        """Which of the blocks a reader that waits for all of them is told not to wait for."""
        info = self.pages.info
        fetching = self.reader.fetch(keys, info.layout.layout_id, info.block_bytes, wait=60)
        try:
            async with within(10):
                async for _ in fetching:
                    pass
        finally:
            await fetching.aclose()
        return fetching.missing


@asynccontextmanager
async def rig(directory: Path, reservation_seconds: float = 10.0) -> AsyncIterator[Rig]:
    info = create_engine(EngineSettings(kind="sim")).info
    pages = Pages(info)
    async with (
        running_store(directory, 16 * MIB, reservation_seconds=reservation_seconds) as store,
        connected(store.address, "shm") as writer,
        connected(store.address, "shm", client_id="reader") as reader,
    ):
        with ThreadPoolExecutor(1) as io:
            publisher = KvPublisher(cast("Engine", pages), writer, io, lambda: 0.0, 4)
            running = asyncio.create_task(publisher.run())
            yield Rig(store, pages, publisher, reader, running)
            assert not running.done()
            running.cancel()
            await asyncio.wait([running])
        assert (writer.reservations, reader.leases) == (0, 0)
        await store.at_baseline()


def fails(error: Exception, at: int) -> Callable[[int], None]:
    def trouble(index: int) -> None:
        if index == at:
            raise error

    return trouble


async def test_an_engine_that_fails_to_give_a_block_costs_its_batch(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        first, second = keys_of(BATCH_BLOCKS, "first"), keys_of(BATCH_BLOCKS, "second")
        it.pages.trouble = fails(RuntimeError("a page is unreadable"), 3)
        for turn in range(6):  # more often than batches are in flight
            keys = keys_of(BATCH_BLOCKS, f"f{turn}")
            await it.publish(keys)
            assert await it.waits_in_vain(keys) == set(range(BATCH_BLOCKS))
        it.pages.trouble = lambda _: None
        await it.publish(first + second)
        assert await it.waits_in_vain(first + second) == set()


async def test_blocks_that_are_gone_are_not_waited_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        keys = keys_of(12)
        it.pages.trouble = fails(BlockGoneError("preempted"), 5)
        await it.publish(keys)
        # Those that were to be copied with it are there.
        assert await it.waits_in_vain(keys) == {5}


async def test_blocks_whose_reservation_lapsed_are_not_waited_for(tmp_path: Path) -> None:
    async with rig(tmp_path, reservation_seconds=0.1) as it:
        keys = keys_of(4)
        it.pages.trouble = lambda index: time.sleep(0.5) if index == 2 else None
        await it.publish(keys)
        assert await it.waits_in_vain(keys) == {0, 1, 2, 3}


async def test_a_store_that_is_full_is_told_of_what_does_not_come(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        # Half of the arena is what may be reserved and leased at a time.
        held = await it.reader.reserve(keys_of(8, "held"), LAYOUT, MIB)
        assert len(held.slots) == 8
        try:
            keys = keys_of(4)
            await it.publish(keys)
            assert await it.waits_in_vain(keys) == {0, 1, 2, 3}
        finally:
            await held.aclose()
