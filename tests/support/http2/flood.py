"""A malicious client next to a well-behaved one."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from bench.harness.machine import rss_bytes
from tests.support.clock import Stopwatch, within
from tests.support.grpc.echo_service import EMPTY
from tests.support.http2.frames import Code
from tests.support.http2.peer import Peer, connect

MIB = 1 << 20
IDS = range(1, 1 << 30, 2)
"""Stream ids in a client's order."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a flood."""

    code: Code | None
    """Code of the GOAWAY that ended the connection; None: there was none."""
    closed: bool
    cpu: float
    """CPU seconds of the thread that runs the server and both clients."""
    memory: int
    """The most bytes by which the process grew."""
    sent: int
    """Bytes sent."""
    wait: float
    """The longest call of the other client, in seconds of a quiet machine."""


async def flood(address: str, peer: Peer, pieces: Iterable[bytes], *, linger: float = 0) -> Cost:
    """Send pieces until all are sent or the server closes, while another client makes calls.

    Args:
        address: the server's address.
        peer: the sending side; what it receives is read only after everything was sent.
        pieces: some ten KiB each.
        linger: seconds to keep reading until the connection ends.
    """
    before = rss_bytes(os.getpid())
    sent = memory = 0
    with_others = _Others(address)
    others = asyncio.create_task(with_others.run())
    cpu = time.thread_time()
    reading = asyncio.create_task(peer.until_closed())
    try:
        for piece in pieces:
            if reading.done():
                break
            peer.send(piece)
            sent += len(piece)
            with suppress(ConnectionError):
                await peer.drain()
            await asyncio.sleep(0)
            memory = max(memory, rss_bytes(os.getpid()) - before)
        await asyncio.wait([reading], timeout=linger)
        cpu = time.thread_time() - cpu
        await with_others.one_more()
    finally:
        closed = reading.done()
        reading.cancel()
        others.cancel()
        await asyncio.wait([reading, others])
    memory = max(memory, rss_bytes(os.getpid()) - before)
    code = peer.goaway.error if peer.goaway else None
    return Cost(code, closed, cpu, memory, sent, with_others.longest)


class _Others:
    """A client that makes calls without pause."""

    def __init__(self, address: str) -> None:
        self.longest = 0.0
        self._address = address
        self._calls = 0

    async def run(self) -> None:
        async with connect(self._address) as peer:
            for stream_id in range(1, 1 << 30, 2):
                watch = Stopwatch()
                answer = await peer.call(stream_id, EMPTY)
                assert answer.grpc_status == "0", answer
                self.longest = max(self.longest, watch.seconds)
                self._calls += 1
                peer.frames.clear()
                peer.answers.clear()
                await asyncio.sleep(0.005)

    async def one_more(self) -> None:
        """Wait for a call that starts and ends after now."""
        enough = self._calls + 2
        async with within(10):
            while self._calls < enough:
                await asyncio.sleep(0.005)


def repeated(piece: bytes, total: int = 8 * MIB, before: bytes = b"") -> Iterator[bytes]:
    """Yield a frame again and again, in pieces of some 32 KiB, up to `total` bytes."""
    if before:
        yield before
    many = piece * max(1, (32 * 1024) // len(piece))
    for _ in range(total // len(many)):
        yield many


def per_stream(make: Callable[[int], bytes], count: int = 100_000) -> Iterator[bytes]:
    """Yield the results of `make` for one stream after another, 50 at a time."""
    for first in range(0, count, 50):
        yield b"".join(make(stream_id) for stream_id in IDS[first : first + 50])


def cheap(cost: Cost, cpu: float = 2.0, memory: int = 32 * MIB) -> None:
    """Fail if a flood cost more than allowed, or another client waited too long."""
    assert cost.cpu < cpu, cost
    assert cost.memory < memory, cost
    assert cost.wait < 1.0, cost
