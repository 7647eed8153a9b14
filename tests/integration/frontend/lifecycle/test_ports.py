"""Several frontends on one port, where both are set to share it; else the second is refused."""

import asyncio
import socket
from typing import Any

import pytest

from baton.cluster.etcd.local import free_port
from baton.rpc.server.server import Server
from baton.settings import GrpcSettings, HttpSettings, StartupError
from services.frontend.http.server import HttpServer
from tests.support.clock import DEADLINE_SECONDS


def named(name: bytes) -> Any:
    """An application that answers with its name."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": name})

    return app


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_two_http_servers_share_a_port_and_its_connections() -> None:
    settings = HttpSettings(port=free_port(), reuse_port=True)
    async with HttpServer(named(b"one"), settings, 30) as one:
        await one.start()
        async with HttpServer(named(b"two"), settings, 30) as two:
            await two.start()
            answers = [await ask(settings.port) for _ in range(64)]
        assert {b"one" in answer for answer in answers} == {True, False}
        assert all(b"one" in answer or b"two" in answer for answer in answers)


async def test_a_port_is_not_shared_unless_both_say_so() -> None:
    port = free_port()
    async with HttpServer(named(b"one"), HttpSettings(port=port), 30) as one:
        await one.start()
        async with HttpServer(named(b"two"), HttpSettings(port=port, reuse_port=True), 30) as two:
            with pytest.raises(StartupError, match=r"http\.port"):
                await two.start()


async def test_two_grpc_servers_share_a_port() -> None:
    settings = GrpcSettings(port=free_port(), reuse_port=True)
    async with Server(settings, "one") as one, Server(settings, "two") as two:
        await one.start()
        await two.start()
        assert one.address == two.address
        with socket.create_connection(("127.0.0.1", settings.port), timeout=DEADLINE_SECONDS):
            pass
    async with (
        Server(settings, "one") as one,
        Server(GrpcSettings(port=settings.port), "two") as two,
    ):
        await one.start()
        with pytest.raises(StartupError, match=r"grpc\.port"):
            await two.start()
