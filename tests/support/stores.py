"""Stores in the test's own process, complete except for etcd, and their clients."""

import asyncio
import importlib.util
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import KvStoreClient
from baton.kv.events.log import EventLog
from baton.kv.events.service import SERVICE_NAME as EVENTS_NAME
from baton.kv.events.service import KvEventService
from baton.rpc.channels import open_channel
from baton.rpc.server.server import Server
from baton.settings import EventSettings, GrpcSettings, KvSettings, PeerSettings, StoreSettings
from baton.settings.transports import GRPC, NIXL, PEER_TRANSPORTS
from services.kvstore.api.admin import stat
from services.kvstore.api.service import SERVICE_NAME, KvStoreService
from services.kvstore.app import keep_time, nixl_thread, touch_arena
from services.kvstore.disk_setup import keep_disk
from services.kvstore.memory.arena import Arena
from services.kvstore.peers.pool import PeerPool
from services.kvstore.peers.transports.nixl.agent import LIBRARIES
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.peers.transports.nixl.thread import NixlThread
from services.kvstore.store import Store
from tests.support.clock import PATIENCE_SECONDS
from tests.support.wait import eventually

MIB = 1024 * 1024
LAYOUT = b"L" * 16

needs_nixl = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in LIBRARIES),
    reason="NIXL is not installed (it has no wheel for this platform): stores use gRPC",
)

EACH_PEER_TRANSPORT = [
    pytest.param(name, marks=[needs_nixl] if name == NIXL else []) for name in PEER_TRANSPORTS
]
"""For tests that must pass with every transport between stores."""


@dataclass
class RunningStore:
    """A store that serves at `address`."""

    store: Store
    address: str
    peers: PeerPool
    pushes: NixlSender
    nixl: NixlThread | None

    @property
    def source(self) -> pb.KvSource:
        return pb.KvSource(store_id=self.store.store_id, address=self.address)

    def counts(self) -> tuple[int, ...]:
        """All counts that must be 0 when no client uses the store."""
        counts = stat(self.store)
        pinned = self.store.table.pinned_bytes
        return (counts.leases, counts.reservations, counts.quarantined, counts.waiters, pinned)

    def held(self) -> dict[str, int]:
        """Return what clients and other stores hold here, by name; empty at baseline."""
        names = ("leases", "reservations", "quarantined", "waiters", "pinned bytes")
        counts = dict(zip(names, self.counts(), strict=True)) | {
            "pushes to others": self.pushes.live,
            "pushes given up": self.peers.quarantined,
            "pushes expected": self.nixl.expected if self.nixl is not None else 0,
        }
        return {name: count for name, count in counts.items() if count}

    async def at_baseline(self, seconds: float = 3.0) -> None:
        """Return once nothing is held.

        Raises:
            AssertionError: something is still held after `seconds`; the text names it.
        """
        try:
            await eventually(lambda: not self.held(), seconds)
        except TimeoutError:
            raise AssertionError(f"still held after {seconds:g} s: {self.held()}") from None


@asynccontextmanager
async def running_store(
    directory: Path,
    arena_bytes: int = 16 * MIB,
    port: int = 0,
    store_id: str = "",
    reservation_seconds: float = 60.0,
    lease_seconds: float = 60.0,
    partial_seconds: float = 60.0,
    disk_path: Path | None = None,
    disk_bytes: int = 64 * MIB,
    quotas: dict[str, int] | None = None,
    disk_stall_seconds: float = 60.0,
    disk_retry_seconds: float = 600.0,
    verify: bool = True,
    peer_transport: str = GRPC,
    push_seconds: float = 30.0,
    retry_seconds: float = 0.5,
) -> AsyncIterator[RunningStore]:
    """Run a store until the context exits. `peer_transport` is the best that it uses.

    By default nothing expires during a test, since a machine that stalls is not an error.
    """
    async with AsyncExitStack() as stack:
        arena = stack.enter_context(Arena(directory, arena_bytes))
        log = EventLog(secrets.token_hex(4))
        store = Store(
            store_id or f"store-{secrets.token_hex(3)}",
            arena,
            log,
            reservation_seconds=reservation_seconds,
            lease_seconds=lease_seconds,
            partial_seconds=partial_seconds,
            quotas=quotas,
        )
        stack.callback(store.close)
        await touch_arena(store, lambda: None)
        if disk_path is not None:
            stack.push_async_callback(store.close_disk)
            settings = StoreSettings(
                disk_bytes=disk_bytes,
                disk_stall_seconds=disk_stall_seconds,
                disk_retry_seconds=disk_retry_seconds,
            )
            keeping = asyncio.create_task(
                keep_disk(store, disk_path, settings, lambda _: None, verify=verify)
            )
            stack.callback(keeping.cancel)
            await eventually(lambda: store.disk or store.disk_failed)
        incarnation = secrets.token_hex(4)
        nixl = None
        if peer_transport == NIXL:
            nixl = nixl_thread(arena, store.store_id, incarnation)
        peers = await stack.enter_async_context(
            PeerPool(
                store,
                incarnation,
                nixl=nixl,
                settings=PeerSettings(
                    nixl_answer_seconds=30,
                    nixl_push_seconds=push_seconds,
                    nixl_retry_seconds=retry_seconds,
                ),
            )
        )
        store.set_peers(peers)
        ticking = asyncio.create_task(keep_time(store))
        stack.callback(ticking.cancel)
        server = await stack.enter_async_context(Server(GrpcSettings(port=port), "kvstore"))
        pushes = NixlSender(store, nixl)
        server.add(KvStoreService(store, pushes, peers=peers).register, SERVICE_NAME)
        server.add(KvEventService(log, EventSettings(heartbeat_seconds=0.2)).register, EVENTS_NAME)
        await server.start()
        server.set_ready(True)
        if nixl is not None:
            stack.push_async_callback(nixl.close)
        yield RunningStore(store, server.address, peers, pushes, nixl)


@asynccontextmanager
async def connected(
    address: str | Callable[[], str | None],
    *transports: str,
    client_id: str = "client",
    seconds: float = 5,
) -> AsyncIterator[KvStoreClient]:
    """A connected client; `transports` as for KvStoreClient, both if none."""
    resolve = address if callable(address) else lambda: address
    async with KvStoreClient(
        resolve,
        client_id,
        "1",
        settings=KvSettings(transports=tuple(transports or ("shm", "grpc"))),
    ) as client:
        assert await client.wait_connected(seconds)
        yield client


def block(number: int, size: int) -> bytes:
    """Bytes that differ between blocks and within each block."""
    return (number.to_bytes(4, "big") * (size // 4 + 1))[:size]


def keys_of(count: int, salt: str = "") -> list[bytes]:
    """Keys that no other salt has."""
    return [f"{salt:.8s}{number:08d}".encode().rjust(16, b"k") for number in range(count)]


async def put(
    client: KvStoreClient, keys: list[bytes], size: int, first: int = 0, layout: bytes = LAYOUT
) -> int:
    """Write `block(first + i)` under each key; return how many are readable."""
    reservation = await client.reserve(keys, layout, size)
    try:
        for index, view in reservation.slots.items():
            view[:] = block(first + index, size)
        return await reservation.commit(sorted(reservation.slots)) + len(reservation.present)
    finally:
        await reservation.aclose()


async def get(
    client: KvStoreClient,
    keys: list[bytes],
    size: int,
    wait: float = 0.0,
    sources: list[pb.KvSource] | None = None,
    layout: bytes = LAYOUT,
) -> tuple[dict[int, bytes], set[int]]:
    """Fetch and verify copies; return the received and the missing ones, by index."""
    found: dict[int, bytes] = {}
    fetching = client.fetch(keys, layout, size, sources or [], wait)
    try:
        async for batch in fetching:
            for fetched in batch:
                copy = bytearray(fetched.nbytes)
                if fetched.copy_to(memoryview(copy)):
                    found[fetched.index] = bytes(copy)
    finally:
        await fetching.aclose()
    return found, fetching.missing


async def stat_at(address: str) -> pb.StatResponse:
    channel = open_channel(address)
    try:
        return await KvStoreServiceStub(channel).Stat(pb.StatRequest(), timeout=PATIENCE_SECONDS)
    finally:
        await channel.close(None)


async def wait_stat(address: str, seconds: float = 5.0, **counts: int) -> None:
    """Wait until the store reports these counts."""

    async def reached() -> bool:
        now = await stat_at(address)
        return all(getattr(now, name) == count for name, count in counts.items())

    await eventually(reached, seconds)


async def wait_memory(address: str, arena_bytes: int) -> None:
    """Wait until a store has all of its arena.

    It serves as soon as it has the first pages; a busy machine provides the others later.
    """
    await wait_stat(address, PATIENCE_SECONDS, capacity_bytes=arena_bytes)


async def assert_baseline(address: str) -> None:
    await wait_stat(address, leases=0, reservations=0, quarantined=0, waiters=0, sessions=0)


def source(service) -> pb.KvSource:
    return pb.KvSource(store_id=service.instance_id, address=service.address)
