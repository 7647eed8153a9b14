"""A router in this process, and workers and stores that are real servers doing no work."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.kv.keys import pack
from baton.rpc.channels import open_channel
from baton.rpc.protocol import hello
from tests.support.clock import within
from tests.support.doubles.member import LAYOUT, MODEL, FakeMember
from tests.support.services.cluster import Service
from tests.support.services.service import NO_SETTINGS, LocalService
from tests.support.services.settings import Settings


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
        return await self.read()

    async def read(self) -> router_pb2.FrameFromRouter:
        """The next answer, beats aside."""
        async with within(10.0):
            while True:
                frames = [
                    one
                    for one in (await self.call.read()).frames
                    if one.WhichOneof("frame") not in ("hello", "heartbeat")
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
    routers: list[LocalService] = field(default_factory=list)

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

    async def router(self, settings: Settings = NO_SETTINGS, *, ready: bool = True) -> LocalService:
        """Start a router in this process; it is ready, unless that is not waited for."""
        # A port known beforehand: without etcd there is no record that would say it.
        address = f"127.0.0.1:{self.stack.enter_context(held_port())}"
        joined = {
            "instance_id": f"router-{len(self.routers)}",
            "grpc.port": int(address.rpartition(":")[2]),
            "etcd.endpoints": self.etcd.endpoints,
            "etcd.cluster": self.cluster,
            "queue.gate_seconds": 86_400,  # members do no work: what waited would wait for ever
            "watch.silence_seconds": 30,  # a machine that stands still is no member that is gone
        }
        router = LocalService("router", {**joined, **settings})
        router.instance.address = address
        self.stack.push_async_callback(router.stop, drain=False)
        starting = asyncio.create_task(router.start())
        if ready:
            await starting
        else:
            self.stack.callback(starting.cancel)
        self.routers.append(router)
        return router

    def frontend(self, router: Service) -> FakeFrontend:
        frontend = FakeFrontend(router.address)
        self.stack.push_async_callback(frontend.close)
        return frontend


@pytest.fixture
async def world(etcd: LocalEtcd, etcd_client: Etcd, cluster: str) -> AsyncIterator[World]:
    """An empty cluster on the session's etcd."""
    async with AsyncExitStack() as stack:
        yield (made := World(etcd, etcd_client, cluster, stack))
        assert all(router.failure is None for router in made.routers)


@pytest.fixture
async def own_etcd_world(tmp_path_factory: Any, cluster: str) -> AsyncIterator[World]:
    """An empty cluster on an etcd that the test may kill."""
    async with AsyncExitStack() as stack:
        port = stack.enter_context(held_port())
        server = LocalEtcd(tmp_path_factory.mktemp("own-etcd"), client_port=port, durable=False)
        etcd = await stack.enter_async_context(server)
        client = await stack.enter_async_context(Etcd(etcd.endpoints))
        yield (made := World(etcd, client, cluster, stack))
        assert all(router.failure is None for router in made.routers)
