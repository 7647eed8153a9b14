"""Who reads nothing for a while is told apart from who reads slowly."""

import asyncio

from baton.rpc.timing.stall import Stall
from tests.support.clock import within

SECONDS = 0.2


class Peer:
    """Has bytes that wait for it."""

    def __init__(self) -> None:
        self.waiting = 1_000_000
        self.stalled = asyncio.Event()

    def watch(self) -> Stall:
        return Stall(SECONDS, lambda: self.waiting, self.stalled.set)


async def test_who_reads_nothing_is_told() -> None:
    peer = Peer()
    peer.watch()
    began = asyncio.get_running_loop().time()
    async with within(10):
        await peer.stalled.wait()
    assert asyncio.get_running_loop().time() - began >= 0.9 * SECONDS


async def test_who_reads_a_byte_now_and_then_is_not() -> None:
    peer = Peer()
    peer.watch()
    loop = asyncio.get_running_loop()
    end = loop.time() + 4 * SECONDS
    while loop.time() < end:
        peer.waiting -= 1  # in every turn of the loop: before every look, on any machine
        await asyncio.sleep(0)
    assert not peer.stalled.is_set()
    async with within(10):
        await peer.stalled.wait()


async def test_what_comes_meanwhile_was_not_read() -> None:
    peer = Peer()
    peer.watch()
    async with within(10):
        while not peer.stalled.is_set():
            peer.waiting += 1
            await asyncio.sleep(0.001)


async def test_who_is_let_go_is_not_told() -> None:
    peer = Peer()
    peer.watch().cancel()
    await asyncio.sleep(1.5 * SECONDS)
    assert not peer.stalled.is_set()
