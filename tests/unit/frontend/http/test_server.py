"""The server itself: what it waits for before there is a connection."""

import asyncio
from typing import Any

import pytest

from baton.rpc.tls.public import public_tls
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import HttpSettings, PublicSettings
from services.frontend.http import server as http
from services.frontend.http.server import HttpServer
from tests.support.clock import within
from tests.support.http.connections import Application
from tests.support.tls import CERT, KEY, client_context


async def test_a_handshake_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert http.HANDSHAKE_SECONDS == 10
    monkeypatch.setattr(http, "HANDSHAKE_SECONDS", 0.3)
    settings: Any = PublicSettings(tls_cert=CERT, tls_key=KEY)
    async with (
        public_tls(settings, 60) as tls,
        HttpServer(Application(), HttpSettings(port=0), 10.0, tls.http_context) as server,
    ):
        await server.start()
        silent, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with within(5):
            assert await silent.read() == b""
        writer.close()
        reader, writer = await asyncio.open_connection(
            "localhost", server.port, ssl=client_context("http/1.1")
        )
        writer.write(b"GET /whole/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        async with within(5):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_empty_lines_do_not_keep_an_idle_connection() -> None:
    settings = HttpSettings(port=0, idle_timeout_seconds=1)
    async with HttpServer(Application(), settings, 10.0) as server:
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /whole/1 HTTP/1.1\r\nhost: x\r\n\r\n")
        closed = asyncio.create_task(reader.read())
        async with within(5):
            while not closed.done():
                writer.write(b"\r\n")
                await asyncio.wait([closed], timeout=0.1)
        assert (await closed).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_the_oldest_of_too_many_bodies_on_their_way_is_refused() -> None:
    ask = (
        b"POST /whole/%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 100000\r\n\r\n"
    )
    settings, unfinished = HttpSettings(port=0), Unfinished(100_000)
    async with HttpServer(Application(), settings, 10.0, unfinished=unfinished) as server:
        await server.start()
        slow, to_slow = await asyncio.open_connection("127.0.0.1", server.port)
        to_slow.write(ask % 1 + b" " * 60_000)
        await asyncio.sleep(0.1)
        for number in (2, 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(ask % number + b" " * 60_000)
            async with within(5):
                if number == 2:
                    assert (await slow.read()).startswith(b"HTTP/1.1 503 ")
                writer.write(b" " * 40_000)
                assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            writer.close()
        to_slow.close()
