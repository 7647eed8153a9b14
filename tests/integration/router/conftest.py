"""A router in this process, and workers and stores that are real servers doing no work."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from baton.cluster.etcd import Etcd
from baton.cluster.local_etcd import LocalEtcd, free_port
from baton.cluster.registration import Registration
from baton.internal.v1 import cluster_pb2, kvevents_pb2, router_pb2, worker_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.internal.v1.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from baton.kv.events.log import EventLog
from baton.kv.events.service import SERVICE_NAME as KV_EVENTS
from baton.kv.events.service import KvEventService
from baton.kv.keys import pack
from baton.process.process import Process
from baton.rpc.channels import open_channel
from baton.rpc.protocol import hello
from baton.rpc.server import Server
from baton.settings import GrpcSettings, RouterSettings
from services.router.app import compose

LAYOUT = b"L" * 16
MODEL = "m"
BLOCK_TOKENS = 16
CARD = cluster_pb2.ModelCard(
    name=MODEL, layout_id=LAYOUT, block_tokens=BLOCK_TOKENS, block_bytes=65_536
)


class FakeMember(WorkerServiceServicer):
    """A worker or store as the router sees it: registered, with health, load and events.

    `load` changes what it reports, `hold` and `evict` what it holds. `kill` ends its server as a
    crash would: connections break, while its record stays in etcd. `restart` begins it anew.
    """

    def __init__(self, etcd: Etcd, cluster: str, instance: cluster_pb2.Instance) -> None:
        self.instance = instance
        self.log: EventLog
        self.muted = False
        """It reports no load any more, and stays connected."""
        self._etcd = etcd
        self._cluster = cluster
        self._report: dict[str, Any] = {"free_pages": 1000, "total_pages": 1000}
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


class FakeFrontend:
    """One Place stream."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self.call: Any = RouterServiceStub(self._channel).Place()
        self._asked = 0
        self._greeting = [router_pb2.FrameToRouter(hello=hello())]

    def query(self, chain: Sequence[bytes] = (), **fields: Any) -> router_pb2.PlaceRequest:
        """A query for 1,030 tokens of the model, unless told otherwise."""
        self._asked += 1
        query = router_pb2.PlaceQuery(
            correlation_id=self._asked,
            chains=[router_pb2.Chain(layout_id=LAYOUT, keys=pack(chain), block_tokens=16)],
            prompt_tokens=1030,
            max_tokens=64,
        )
        query.context.model = MODEL
        query.context.request_id = secrets.token_hex(4)
        query.MergeFrom(router_pb2.PlaceQuery(**fields))
        greeting, self._greeting = self._greeting, []
        return router_pb2.PlaceRequest(frames=[*greeting, router_pb2.FrameToRouter(query=query)])

    async def ask(self, chain: Sequence[bytes] = (), **fields: Any) -> router_pb2.FrameFromRouter:
        await self.call.write(self.query(chain, **fields))
        async with asyncio.timeout(10.0):
            while True:
                frames = [
                    one for one in (await self.call.read()).frames if not one.HasField("hello")
                ]
                if frames:
                    (answer,) = frames
                    return answer

    async def place(
        self, chain: Sequence[bytes] = (), *, keep: bool = False, **fields: Any
    ) -> router_pb2.Placement:
        """A placement, whose ticket is given back at once unless it is to be kept."""
        response = await self.ask(chain, **fields)
        assert response.HasField("placement"), response.failed
        if not keep:
            await self.return_tickets([response.placement.ticket])
        return response.placement

    async def return_tickets(self, tickets: Sequence[str]) -> None:
        returned = router_pb2.ReturnTickets(tickets=tickets)
        frame = router_pb2.FrameToRouter(return_tickets=returned)
        await self.call.write(router_pb2.PlaceRequest(frames=[frame]))

    async def close(self) -> None:
        self.call.cancel()
        await self._channel.close(None)


@dataclass
class World:
    """A cluster of fakes and routers; everything in it ends with the test."""

    etcd: LocalEtcd
    client: Etcd
    cluster: str
    stack: AsyncExitStack
    members: dict[str, FakeMember] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    routers: list[str] = field(default_factory=list)
    """Their addresses."""

    async def add(
        self, name: str, role: cluster_pb2.Role.ValueType, store: str = "store-a"
    ) -> FakeMember:
        worker = role != cluster_pb2.ROLE_KVSTORE
        instance = cluster_pb2.Instance(
            id=name,
            role=role,
            model=MODEL if worker else "",
            layout_id=LAYOUT if worker else b"",
            store_id=store if worker else "",
        )
        member = self.members[name] = FakeMember(self.client, self.cluster, instance)
        await member.start()
        self.stack.push_async_callback(member.stop)
        return member

    async def prefill(self, name: str, store: str = "store-a") -> FakeMember:
        return await self.add(name, cluster_pb2.ROLE_PREFILL, store)

    async def decode(self, name: str, store: str = "store-a") -> FakeMember:
        return await self.add(name, cluster_pb2.ROLE_DECODE, store)

    async def store(self, name: str) -> FakeMember:
        return await self.add(name, cluster_pb2.ROLE_KVSTORE)

    async def router(self, **fields: Any) -> str:
        """Start a router in this process, with these settings; its address."""
        settings = RouterSettings(
            grpc=GrpcSettings(port=free_port()),
            etcd={"endpoints": self.etcd.endpoints, "cluster": self.cluster},
            **fields,
        )
        stack = await self.stack.enter_async_context(AsyncExitStack())
        process = Process("router", "router", secrets.token_hex(8), stack, asyncio.Event())
        await compose(process, settings)
        self.processes.append(process)
        self.routers.append(f"127.0.0.1:{settings.grpc.port}")
        return self.routers[-1]

    def frontend(self, address: str) -> FakeFrontend:
        frontend = FakeFrontend(address)
        self.stack.push_async_callback(frontend.close)
        return frontend


@pytest.fixture
async def world(etcd: LocalEtcd, etcd_client: Etcd, cluster: str) -> AsyncIterator[World]:
    """An empty cluster on the session's etcd."""
    async with AsyncExitStack() as stack:
        yield (made := World(etcd, etcd_client, cluster, stack))
        assert all(process.failure is None for process in made.processes)


@pytest.fixture
async def own_etcd_world(tmp_path_factory: Any, cluster: str) -> AsyncIterator[World]:
    """An empty cluster on an etcd that the test may kill."""
    async with AsyncExitStack() as stack:
        etcd = await stack.enter_async_context(LocalEtcd(tmp_path_factory.mktemp("own-etcd")))
        client = await stack.enter_async_context(Etcd(etcd.endpoints))
        yield (made := World(etcd, client, cluster, stack))
        assert all(process.failure is None for process in made.processes)
