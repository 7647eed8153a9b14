"""A picker and a router in this process, frontends and workers that do no work, a real etcd."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.internal.envoy.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from baton.internal.envoy.external_processor_pb2_grpc import ExternalProcessorStub
from baton.internal.v1 import cluster_pb2
from baton.rpc.channels import open_channel
from tests.integration.router.conftest import World
from tests.support.clock import DEADLINE_SECONDS
from tests.support.doubles.member import FakeMember
from tests.support.services.service import NO_SETTINGS, LocalService
from tests.support.services.settings import Settings


@dataclass
class PickerWorld(World):
    """A cluster of fakes, routers and pickers."""

    async def frontend_at(self, address: str, *, draining: bool = False) -> FakeMember:
        """Register a frontend that serves HTTP at an address."""
        instance = cluster_pb2.Instance(
            id=f"at-{address.replace(':', '-')}",
            role=cluster_pb2.ROLE_FRONTEND,
            http_address=address,
            draining=draining,
        )
        member = FakeMember(self.client, self.cluster, instance)
        await member.start()
        self.stack.push_async_callback(member.stop)
        return member

    async def picker(self, settings: Settings = NO_SETTINGS) -> "Gateway":
        """Start a picker, and return a gateway that uses it."""
        address = f"127.0.0.1:{self.stack.enter_context(held_port())}"
        joined = {
            "instance_id": "picker",
            "grpc.port": int(address.rpartition(":")[2]),
            "etcd.endpoints": self.etcd.endpoints,
            "etcd.cluster": self.cluster,
            "picking.outlook_seconds": 0.001,  # what changes shows at once
        }
        service = LocalService("picker", {**joined, **settings})
        await service.start()
        self.stack.push_async_callback(service.stop, drain=False)
        gateway = Gateway(address, service)
        self.stack.push_async_callback(gateway.close)
        return gateway


class Gateway:
    """A client of the picker, by Google's gRPC."""

    def __init__(self, address: str, service: LocalService) -> None:
        self.address = address
        self.service = service
        self._channel = open_channel(address)
        self._calls: list[Any] = []

    def call(self, timeout: float = DEADLINE_SECONDS) -> Any:
        """Open the stream of a request."""
        self._calls.append(ExternalProcessorStub(self._channel).Process(timeout=timeout))
        return self._calls[-1]

    async def answers(self, *messages: ProcessingRequest) -> list[ProcessingResponse]:
        """Send messages, end the stream, and return all answers."""
        call = self.call()
        for message in messages:
            await call.write(message)
        await call.done_writing()
        answers = []
        while (answer := await call.read()) is not grpc.aio.EOF:
            answers.append(answer)
        assert await call.code() is grpc.StatusCode.OK
        return answers

    async def close(self) -> None:
        for call in self._calls:
            call.cancel()
        await self._channel.close(None)


@pytest.fixture
async def world(etcd: LocalEtcd, etcd_client: Etcd, cluster: str) -> AsyncIterator[PickerWorld]:
    """An empty cluster on the session's etcd."""
    async with AsyncExitStack() as stack:
        yield (made := PickerWorld(etcd, etcd_client, cluster, stack))
        assert all(router.failure is None for router in made.routers)
