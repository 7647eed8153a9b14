"""Two stores that write into each other's arenas, each with a client."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from baton.kv.client.client import KvStoreClient
from tests.support.clock import within
from tests.support.stores import (
    RunningStore,
    block,
    connected,
    get,
    keys_of,
    running_store,
)

SIZE = 512 * 1024


COUNT = 8


IN_FLIGHT = 4
"""Objects that a store of 16 MiB has on their way at a time."""


EVERYTHING = ({index: block(index, SIZE) for index in range(COUNT)}, set())


@dataclass
class Side:
    """A store and a client of it."""

    store: RunningStore
    client: KvStoreClient

    def came(self, transport: str) -> int:
        return self.store.store.moved_bytes["peer", transport]


@asynccontextmanager
async def side(
    directory: Path, name: str, transport: str = "nixl", **options
) -> AsyncIterator[Side]:
    (directory / name).mkdir(exist_ok=True)
    async with (
        running_store(
            directory / name, store_id=name, peer_transport=transport, **options
        ) as store,
        connected(store.address, "shm") as client,
    ):
        yield Side(store, client)
        await store.at_baseline(10)


async def fetch(b: Side, sources: list, wait: float = 20, salt: str = ""):
    async with within(30):
        return await get(b.client, keys_of(COUNT, salt), SIZE, wait, sources)


async def pushing(b: Side) -> None:
    """Wait until a push is under way, however short."""
    async with within(15):
        while not b.store.nixl.expected:
            await asyncio.sleep(0)


class Gate:
    """Keeps a store's NIXL thread from doing anything, as if its network hung."""

    def __init__(self, store: RunningStore) -> None:
        assert store.nixl is not None
        self._open = threading.Event()
        store.nixl._submit(lambda _agent: self._open.wait(30) and None)

    def open(self) -> None:
        self._open.set()
