"""Workers and stores as a router sees them: registered, with health, load and events."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from baton.cluster.etcd.client import Etcd
from baton.cluster.members.registration import Registration
from baton.internal.v1 import cluster_pb2, kvevents_pb2, worker_pb2
from baton.internal.v1.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from baton.kv.events.log import EventLog
from baton.kv.events.service import SERVICE_NAME as KV_EVENTS
from baton.kv.events.service import KvEventService
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings

LAYOUT = b"L" * 16
MODEL = "m"
BLOCK_TOKENS = 16
CARD = cluster_pb2.ModelCard(
    name=MODEL, layout_id=LAYOUT, block_tokens=BLOCK_TOKENS, block_bytes=65_536
)


class FakeMember(WorkerServiceServicer):
    """A worker or a store that does no work.

    `load` changes the load that it reports, `hold` and `evict` the blocks that it holds. `kill`
    ends its server as a crash would: connections break, and its record stays in etcd. `restart`
    starts it again.
    """

    def __init__(self, etcd: Etcd, cluster: str, instance: cluster_pb2.Instance) -> None:
        self.instance = instance
        self.log: EventLog
        self.muted = False
        """Whether it stops reporting load, but stays connected."""
        self._etcd = etcd
        self._cluster = cluster
        self._report: dict[str, Any] = {
            "free_pages": 1000,
            "total_pages": 1000,
            "chunk_tokens": 512,
            "decode_chunk_tokens": 32,
        }
        self._changed = asyncio.Condition()
        self._running = AsyncExitStack()

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def tier(self) -> kvevents_pb2.Tier.ValueType:
        store = self.instance.role == cluster_pb2.ROLE_KVSTORE
        return kvevents_pb2.TIER_DRAM if store else kvevents_pb2.TIER_ENGINE

    async def start(self) -> None:
        instance = self.instance
        instance.incarnation = secrets.token_hex(4)
        self.log = EventLog(secrets.token_hex(4))
        self._server = await self._running.enter_async_context(
            Server(GrpcSettings(port=0), self.id, incarnation=instance.incarnation)
        )
        self._server.add(KvEventService(self.log).register, KV_EVENTS)
        cards = []
        if instance.model:
            self._server.add(self._register, "baton.internal.v1.WorkerService")
            cards = [CARD]
        await self._server.start()
        instance.address = self._server.address
        await self._running.enter_async_context(
            Registration(self._etcd, self._cluster, instance, cards)
        )

    async def kill(self) -> None:
        await self._server.drain(0)

    async def stop(self) -> None:
        await self._running.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def load(self, **fields: Any) -> None:
        async with self._changed:
            self._report |= fields
            self._changed.notify_all()

    def hold(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.log.stored(LAYOUT, self.tier, key)

    def evict(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.log.evicted(LAYOUT, self.tier, key)

    async def WatchLoad(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        while True:
            if not self.muted:
                report = worker_pb2.LoadReport(
                    instance_id=self.id, incarnation=self.instance.incarnation, **self._report
                )
                yield worker_pb2.WatchLoadResponse(report=report)
            async with self._changed:
                try:
                    async with asyncio.timeout(1.0):
                        await self._changed.wait()
                except TimeoutError:
                    continue

    def _register(self, server: Any) -> None:
        add_WorkerServiceServicer_to_server(self, server)
