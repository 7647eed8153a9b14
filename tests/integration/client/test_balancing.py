"""A client of a name in DNS uses all frontends that the name has, also those that come later."""

import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc.aio import UsageError

from baton.client import BatonClientError, Started, channels
from baton.client.session import pool
from tests.integration.client.test_clients import started, whole
from tests.support.clock import PATIENCE_SECONDS, within
from tests.support.network.dns import DnsServer

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


class Fleet:
    """Frontends at one port of several addresses, and a client of their name."""

    def __init__(self, serve: Any, dns: DnsServer) -> None:
        self._serve = serve
        self._port = 0
        self.dns = dns
        self.frontends: list[Any] = []
        self.face: Any = None

    def start(self, *scripts: Any) -> Any:
        """Start another frontend and enter it in DNS."""
        host = HOSTS[len(self.frontends)]
        frontend, address = self._serve(*(scripts or [whole()]), host=host, port=self._port)
        self._port = int(address.rpartition(":")[2])
        self.frontends.append(frontend)
        self.dns.ips.append(host)
        return frontend

    def connect(self, connect: Callable[..., Any]) -> None:
        self.face = connect(f"dns://{self.dns.address}/frontends.test:{self._port}")

    async def ask(self, count: int = 1) -> None:
        """Ask one request after the other."""
        for _ in range(count):
            answer = await self.face.call(self.face.client.generate("once", model="tiny").answer)
            assert answer.text == "ab"

    async def ask_until_used(self, *frontends: Any) -> None:
        """Ask until each of these frontends has answered another request."""
        before = [len(frontend.requests) for frontend in frontends]
        async with within(PATIENCE_SECONDS):
            while any(len(f.requests) <= n for f, n in zip(frontends, before, strict=True)):
                await self.ask()


@pytest.fixture
async def fleet(serve: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """No frontends yet, and a name for them; sessions are short."""
    monkeypatch.setattr(pool, "BALANCED_REQUESTS", 4)
    async with DnsServer() as dns:
        yield Fleet(serve, dns)


async def test_all_addresses_get_the_same_share(fleet: Fleet, connect: Any) -> None:
    for _ in HOSTS:
        fleet.start()
    fleet.connect(connect)
    await fleet.ask_until_used(*fleet.frontends)  # connected to all
    before = [len(frontend.requests) for frontend in fleet.frontends]
    await fleet.ask(24)
    after = [len(frontend.requests) for frontend in fleet.frontends]
    shares = [b - a for a, b in zip(before, after, strict=True)]
    assert sum(shares) == 24
    assert min(shares) >= 4


async def test_a_new_frontend_is_used_although_no_connection_ends(
    fleet: Fleet, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RESOLVE_SECONDS", 0.05)
    hold = threading.Event()
    first = fleet.start([started(), lambda: hold.wait(60) and None, *whole()[1:]], whole())
    fleet.connect(connect)
    stream = fleet.face.client.generate("once", model="tiny")
    events = fleet.face.events(stream)
    try:
        assert isinstance(await anext(events), Started)
        second = fleet.start()
        await fleet.ask_until_used(first, second)
    finally:
        hold.set()
    assert [event async for event in events][-1] == stream.finished  # on the channel before
    assert (len(first.peers), len(second.peers)) == (1, 1)


async def test_a_lost_frontend_is_left_at_once(fleet: Fleet, connect: Any) -> None:
    first, second = fleet.start(), fleet.start()
    fleet.connect(connect)
    await fleet.ask_until_used(first, second)
    first.stop()
    before = len(second.requests)
    async with within(2):
        await fleet.ask(8)  # DNS names both still
    assert len(second.requests) == before + 8


async def test_a_name_that_is_lost_does_not_matter_while_frontends_serve(
    fleet: Fleet, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RESOLVE_SECONDS", 0.05)
    first = fleet.start()
    fleet.connect(connect)
    await fleet.ask()
    fleet.dns.ips.clear()
    asked = fleet.dns.asked
    async with within(PATIENCE_SECONDS):
        while fleet.dns.asked < asked + 3:
            await fleet.ask()
    second = fleet.start()
    fleet.dns.ips = list(HOSTS[:2])
    await fleet.ask_until_used(first, second)


async def test_a_closed_client_stays_closed(
    fleet: Fleet, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "RESOLVE_SECONDS", 0.0)
    fleet.start()
    fleet.connect(connect)
    await fleet.ask(4)
    await fleet.face.close()
    asked = fleet.dns.asked
    for _ in range(3):
        with pytest.raises((ValueError, grpc.RpcError, UsageError, BatonClientError)):
            await fleet.face.call(fleet.face.client.models)
    assert fleet.dns.asked == asked
