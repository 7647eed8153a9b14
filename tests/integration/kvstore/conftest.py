"""Stores that tests are given."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baton.kv.client.client import KvStoreClient
from baton.settings.transports import GRPC
from tests.support.stores import (
    MIB,
    RunningStore,
    connected,
    running_store,
    wait_stat,
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunningStore]:
    """One store; every count is 0 again at the end of the test."""
    async with running_store(tmp_path) as running:
        yield running
        await running.at_baseline()


@pytest.fixture(params=["shm", "grpc"])
async def client(
    request: pytest.FixtureRequest, store: RunningStore
) -> AsyncIterator[KvStoreClient]:
    """A client of `store`, once per transport."""
    async with connected(store.address, request.param) as connection:
        assert connection.transport == request.param
        yield connection


@pytest.fixture
def spawn_store(spawn_service, tmp_path: Path):
    """Starts a store's process with an arena directory of its own."""

    async def spawn(name: str, peer_transport: str = GRPC, port: int = 0):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        env = {
            "BATON_STORE_ARENA_DIR": str(directory),
            "BATON_STORE_ARENA_BYTES": str(16 * MIB),
            "BATON_STORE_PEER_TRANSPORTS": ",".join({peer_transport, GRPC}),
            # A machine that stands still is no peer that hangs.
            "BATON_PEERS_NIXL_ANSWER_SECONDS": "30",
            "BATON_PEERS_NIXL_PUSH_SECONDS": "30",
            "BATON_GRPC_PORT": str(port),
        }
        service = await spawn_service("kvstore", env, instance_id=name)
        # Until all its memory is there, a store refuses what it has no room for yet.
        await wait_stat(service.address, capacity_bytes=16 * MIB)
        return service

    return spawn
