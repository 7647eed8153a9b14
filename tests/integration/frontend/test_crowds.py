"""A client address that opens too many connections is told so, and keeps no one else out."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx

from tests.support.clock import within
from tests.support.http2.peer import connect
from tests.support.wait import eventually

MOST = 4


async def refused(stage: Any) -> tuple[float, float]:
    """Return how many connections were refused over HTTP, and over gRPC."""
    shown = await stage.frontend.metrics()
    name = 'baton_public_connections_refused_total{surface="%s"}'
    return shown.get(name % "http", 0.0), shown.get(name % "grpc", 0.0)


async def test_connections_of_one_address_are_bounded_over_both_surfaces(
    empty_stage: Any,
) -> None:
    stage = empty_stage
    await stage.set({"public.max_connections_per_address": MOST})
    host, port = stage.http_url.removeprefix("http://").split(":")
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(connect(stage.grpc_address)) for _ in range(2)]
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            async with within(10):
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writers.append(writer)
            stack.callback(writer.close)
        # The address has as many as it may.
        assert await refused(stage) == (0, 0)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
        async with within(10):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 429 ")
        assert b"connection: close" in head
        assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"
        writer.close()
        async with connect(stage.grpc_address, start=False) as other:
            other.start()
            assert await other.until_closed() is None
            assert other.frames == []
        assert await refused(stage) == (1, 1)
        await peers[0].round_trip()  # those that were there go on
        writers[0].close()

        async def served() -> bool:
            async with httpx.AsyncClient(base_url=stage.http_url) as client:
                return (await client.get("/health/live")).status_code == 200

        await eventually(served)


async def test_connections_over_http_are_bounded(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"http.max_connections": MOST})
    host, port = stage.http_url.removeprefix("http://").split(":")
    async with AsyncExitStack() as stack:
        for _ in range(MOST):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            async with within(10):
                assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        reader, writer = await asyncio.open_connection(host, int(port))
        stack.callback(writer.close)
        assert (await ended(reader)).startswith(b"HTTP/1.1 503 ")
        shown = await stage.frontend.metrics()
        assert shown["baton_http_connections_refused_total"] == 1
        assert shown["baton_http_connections"] >= MOST
        async with connect(stage.grpc_address) as peer:
            await peer.round_trip()

    async def left() -> bool:
        return (await stage.frontend.metrics())["baton_http_connections"] == 0

    await eventually(left)


async def test_a_flood_of_connections_is_not_answered_one_by_one(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"public.max_connections_per_address": MOST})
    host, port = stage.http_url.removeprefix("http://").split(":")
    async with AsyncExitStack() as stack:
        holders = [
            await stack.enter_async_context(connect(stage.grpc_address)) for _ in range(MOST)
        ]
        opening = (asyncio.open_connection(host, int(port)) for _ in range(100))
        opened = await asyncio.gather(*opening)
        for _, writer in opened:
            stack.callback(writer.close)
        ends = await asyncio.gather(*(ended(reader) for reader, _ in opened))
        told = [data for data in ends if data.startswith(b"HTTP/1.1 429")]
        assert 0 < len(told) < 100
        assert not [data for data in ends if data and data not in told]
        await holders[0].round_trip()


async def ended(reader: asyncio.StreamReader) -> bytes:
    try:
        async with within(10):
            return await reader.read()
    except ConnectionError:
        return b""
