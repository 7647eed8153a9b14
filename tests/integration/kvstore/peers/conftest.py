"""Stores that fetch from each other."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.integration.kvstore.peers.pair import Pair
from tests.integration.kvstore.peers.side import Side, side
from tests.support.stores import (
    EACH_PEER_TRANSPORT,
    connected,
    running_store,
)


@pytest.fixture(params=EACH_PEER_TRANSPORT)
async def pair(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    transport = request.param
    async with AsyncExitStack() as stack:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        enter = stack.enter_async_context
        stores = [
            await enter(running_store(tmp_path / name, store_id=name, peer_transport=transport))
            for name in "ab"
        ]
        clients = [await enter(connected(store.address, "shm")) for store in stores]
        yield Pair(*stores, *clients, transport)
        for store in stores:
            await store.at_baseline()


@pytest.fixture
async def a(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path, "a") as one:
        yield one


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path, "b", push_seconds=0.4) as one:
        yield one
