"""Kafka brokers for tests, reached in several ways."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

from bench.harness.broker import TOPIC as TOPIC
from bench.harness.broker import Broker
from bench.harness.broker import messages as messages
from tests.support.network.proxy import TcpProxy


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    """A broker with the topic TOPIC."""
    made = Broker()
    await made.start()
    try:
        yield made
    finally:
        await made.kill()


@asynccontextmanager
async def broker_behind_a_proxy() -> AsyncIterator[TcpProxy]:
    """A broker with the topic TOPIC behind a proxy: it keeps its data when cut off."""
    made = Broker()
    async with TcpProxy(made.address) as proxy:
        made.advertised = proxy.address
        await made.start()
        try:
            yield proxy
        finally:
            await made.kill()


@asynccontextmanager
async def broker_with_tls(context: ssl.SSLContext) -> AsyncIterator[str]:
    """A broker that speaks TLS; yield its `localhost:port`."""
    made = Broker()
    host, _, port = made.address.rpartition(":")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        with closing(writer), closing(back), suppress(OSError):
            await asyncio.gather(_pump(reader, back), _pump(there, writer))

    server = await asyncio.start_server(carry, "127.0.0.1", 0, ssl=context)
    async with server:
        address = f"localhost:{server.sockets[0].getsockname()[1]}"
        made.advertised = address
        await made.start(topic="")  # it creates an unknown topic
        try:
            yield address
        finally:
            await made.kill()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()
