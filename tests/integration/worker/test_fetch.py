"""Several blocks at a time come into an engine, and one that is wrong takes none along."""

from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from baton.engine.base import Engine, EngineInfo
from baton.engine.events import Admitted
from baton.engine.factory import create_engine
from baton.kv.client.client import KvStoreClient
from baton.settings import EngineSettings
from baton.worker.kv.fetch import FetchRate, FetchResult, SequenceFetch
from baton.worker.kv.fetch_plan import FetchPlan
from tests.support.clock import within
from tests.support.stores import RunningStore, block, connected, keys_of, put, running_store

ROOM = 4
"""Blocks that the engine's scratch holds."""
CACHED = 2
"""Leading blocks that the engine has already."""


@dataclass
class Pages:
    """As much of an engine as is asked when blocks are fetched."""

    info: EngineInfo
    direct: bool
    """Whether blocks may be written in their pages."""
    scratch: memoryview = field(init=False)
    written: dict[int, bytes] = field(default_factory=dict)
    calls: list[list[int]] = field(default_factory=list)
    """The blocks of each call."""

    def __post_init__(self) -> None:
        self.scratch = memoryview(bytearray(ROOM * self.info.block_bytes))

    def fill_blocks(
        self,
        sequence_id: int,
        indexes: Sequence[int],
        fill: Callable[[int, memoryview], None],
        group: int,
    ) -> bool:
        assert group == 0
        if not self.direct:
            return False
        self.calls.append(list(indexes))
        for n, index in enumerate(indexes):  # one that was wrong is read again
            page = bytearray(self.info.block_bytes)
            fill(n, memoryview(page))
            self.written[index] = bytes(page)
        return True

    def write_blocks(
        self, sequence_id: int, indexes: Sequence[int], data: memoryview, group: int
    ) -> None:
        assert group == 0
        size = self.info.block_bytes
        assert data.nbytes == len(indexes) * size
        self.calls.append(list(indexes))
        for place, index in enumerate(indexes):
            assert index not in self.written
            self.written[index] = bytes(data[place * size : (place + 1) * size])


@dataclass
class Rig:
    store: RunningStore
    pages: Pages
    client: KvStoreClient
    io: ThreadPoolExecutor

    @property
    def layout(self) -> bytes:
        return self.pages.info.layout.layout_id

    async def put(self, keys: Sequence[bytes], first: int = 0) -> None:
        """Put `block(first + i)` under each key."""
        size = self.pages.info.block_bytes
        assert await put(self.client, list(keys), size, first, self.layout) == len(keys)

    def spoil(self, *keys: bytes) -> None:
        """Flip a bit of objects in the arena."""
        slots = {slot.object_id.key: slot for slot in self.store.store.table.objects()}
        for key in keys:
            self.store.store.arena.view(slots[key])[7] ^= 1

    async def fetch(self, keys: Sequence[bytes], wait: float = 0.0) -> FetchResult:
        """Fetch what a sequence asks for that has the first blocks already."""
        tokens = CACHED * self.pages.info.layout.block_tokens
        fetch = SequenceFetch(cast("Engine", self.pages), self.client, self.io, FetchRate(), "")
        async with within(10):
            return await fetch.run(Admitted(1, tokens, tuple(keys)), FetchPlan(keys, (), wait))

    def right(self) -> set[int]:
        """Return which blocks, counted from the first that was asked for, have their own bytes."""
        size = self.pages.info.block_bytes
        for index, data in self.pages.written.items():
            assert data == block(index - CACHED, size)
        return {index - CACHED for index in self.pages.written}


@asynccontextmanager
async def rig(directory: Path, transport: str, *, direct: bool = False) -> AsyncIterator[Rig]:
    pages = Pages(create_engine(EngineSettings(kind="sim")).info, direct)
    async with (
        running_store(directory) as store,
        connected(store.address, transport) as client,
    ):
        with ThreadPoolExecutor(1) as io:
            yield Rig(store, pages, client, io)
        assert client.leases == 0
        await store.at_baseline()


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("transport", ["shm", "grpc"])
async def test_blocks_are_written_as_many_at_a_time_as_there_is_room_for(
    tmp_path: Path, transport: str, direct: bool
) -> None:
    async with rig(tmp_path, transport, direct=direct) as it:
        keys = keys_of(10)
        await it.put(keys)
        result = await it.fetch(keys)
        assert (result.blocks, result.bytes) == (10, 10 * it.pages.info.block_bytes)
        assert it.right() == set(range(10))
        # Batches end where the store's answers do; none is split otherwise.
        assert max(map(len, it.pages.calls)) == ROOM


@pytest.mark.parametrize("transport", ["shm", "grpc"])
@pytest.mark.parametrize("wrong", [0, 2, 5, 9])
@pytest.mark.parametrize("direct", [False, True])
async def test_one_wrong_block_is_left_out_and_ends_what_counts_as_ready(
    tmp_path: Path, transport: str, wrong: int, direct: bool
) -> None:
    async with rig(tmp_path, transport, direct=direct) as it:
        keys = keys_of(10)
        await it.put(keys)
        it.spoil(keys[wrong])
        result = await it.fetch(keys)
        # What is right is in place, and what follows the wrong one is not counted.
        if direct:  # its page is left to be computed
            del it.pages.written[CACHED + wrong]
        assert it.right() == set(range(10)) - {wrong}
        assert result.blocks == wrong
        assert result.bytes == 9 * it.pages.info.block_bytes


async def test_wrong_blocks_side_by_side_shift_no_other(tmp_path: Path) -> None:
    async with rig(tmp_path, "shm") as it:
        keys = keys_of(10)
        await it.put(keys)
        it.spoil(keys[1], keys[2], keys[3], keys[4], keys[8])
        result = await it.fetch(keys)
        assert it.right() == {0, 5, 6, 7, 9}
        assert result.blocks == 1


async def test_a_block_that_does_not_come_ends_what_counts_as_ready(tmp_path: Path) -> None:
    async with rig(tmp_path, "shm") as it:
        keys = keys_of(10)
        await it.put(keys[:3])
        await it.put(keys[4:], first=4)
        result = await it.fetch(keys)
        assert it.right() == set(range(10)) - {3}
        assert result.blocks == 3
