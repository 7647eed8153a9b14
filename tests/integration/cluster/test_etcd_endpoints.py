"""Several endpoints of etcd: names and addresses, of which some do not answer."""

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, suppress

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.cluster.etcd.channels import EtcdChannels
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings
from tests.support.clock import Stopwatch, within
from tests.support.network.dns import DnsServer
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually


@pytest.fixture
async def members(etcd) -> AsyncIterator[list[TcpProxy]]:
    """Two ways to the session's etcd that can break."""
    async with TcpProxy(etcd.endpoints[0]) as first, TcpProxy(etcd.endpoints[0]) as second:
        yield [first, second]


def endpoints(members: list[TcpProxy]) -> tuple[str, ...]:
    """A name and an address, beside one where nobody listens and a name that there is not."""
    name = members[0].address.replace("127.0.0.1", "localhost")
    return name, members[1].address, "[::1]:1", "etcd-0.invalid:2379"


async def test_names_and_addresses_go_together(members, cluster):
    for _ in range(8):  # the first to be asked is drawn
        async with within(10), Etcd(endpoints(members)) as client:
            await client.put(f"/{cluster}/k", b"v")


@pytest.mark.parametrize("first", [0, 1])
async def test_next_endpoint_serves_when_the_one_in_use_goes(members, cluster, first):
    async with Etcd(endpoints(members)) as client:
        await connected(client)
        await members[first].cut()
        with suppress(EtcdError):  # if it was the one in use
            await client.put(f"/{cluster}/k", b"lost")
        await client.put(f"/{cluster}/k", b"1")
        await members[first].mend()
        await members[1 - first].cut()
        await connected(client)


async def test_silent_endpoint_costs_one_request(members, cluster):
    async with within(20), Etcd(endpoints(members), timeout=1.5) as client:
        await connected(client)
        members[0].mute()
        failed = 0
        for turn in range(8):
            try:
                await client.put(f"/{cluster}/k", str(turn).encode())
            except EtcdError:
                failed += 1
        assert failed <= 1


async def test_watch_is_opened_again_elsewhere(members, cluster):
    prefix = f"/{cluster}/"
    async with Etcd(endpoints(members)) as client:
        _, revision = await client.list(prefix)
        for turn in range(2):
            async with within(10), aclosing(client.watch(prefix, revision + 1)) as batches:
                assert await anext(batches) == []
                for member in members:
                    await member.cut()
                    await member.mend()
                with pytest.raises(EtcdError):
                    await anext(batches)
            await connected(client)
            await client.put(prefix + str(turn), b"v")
        async with within(10), aclosing(client.watch(prefix, revision + 1)) as batches:
            seen = 0
            while seen < 2:
                seen += len(await anext(batches))


async def test_name_that_moves_is_followed():
    port = free_port("127.0.0.1", "127.0.0.2")
    async with AsyncExitStack() as stack:
        dns = await stack.enter_async_context(DnsServer("127.0.0.1"))
        channels = EtcdChannels([f"etcd-0.etcd:{port}"], dns.address)
        stack.push_async_callback(channels.close)
        await serving_at("127.0.0.1", port, channels)
        watch = Stopwatch()
        for ip in ("127.0.0.2", "127.0.0.1"):
            dns.ips = [ip]
            await serving_at(ip, port, channels)
        assert watch.seconds < 25, "by itself gRPC asks again after 30 s"


async def serving_at(ip: str, port: int, channels: EtcdChannels) -> None:
    """Start a server, wait until the channels reach it, and stop it."""
    async with Server(GrpcSettings(host=ip, port=port), "etcd") as server:
        await server.start()

        async def answers() -> bool:
            stub = health_pb2_grpc.HealthStub(await channels.pick(1.0))
            with suppress(Exception):  # not yet
                await stub.Check(health_pb2.HealthCheckRequest(), timeout=1.0)
                return True
            return False

        await eventually(answers)


async def connected(client: Etcd) -> None:
    async def answers() -> bool:
        with suppress(EtcdError):
            await client.get("k")
            return True
        return False

    await eventually(answers)


def free_port(*addresses: str) -> int:
    """Return a port that is free at all of these."""
    while True:
        with socket.socket() as probe:
            probe.bind((addresses[0], 0))
            port = int(probe.getsockname()[1])
            with socket.socket() as other, suppress(OSError):
                other.bind((addresses[1], port))
                return port
