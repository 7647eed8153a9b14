"""A stream's answers: in order, bounded, bulk data made only as it is sent."""

import asyncio

import pytest

from baton.errors import BatonError, Reason
from services.kvstore.api.send_queue import SendQueue


async def test_frames_come_in_order_until_the_end() -> None:
    send_queue: SendQueue[int] = SendQueue()
    for number in range(3):
        send_queue.put(number)
    send_queue.end()
    send_queue.put(99)
    assert [frame async for frame in send_queue.frames()] == [0, 1, 2]


async def test_bulk_is_made_only_when_nothing_else_waits() -> None:
    bulk = [10, 11]
    send_queue: SendQueue[int] = SendQueue(more=lambda: bulk.pop(0) if bulk else None)
    send_queue.put(1)
    frames = send_queue.frames()
    assert [await anext(frames) for _ in range(2)] == [1, 10]
    send_queue.put(2)
    assert [await anext(frames) for _ in range(2)] == [2, 11]
    bulk.append(12)
    send_queue.wake()
    assert await anext(frames) == 12
    await frames.aclose()


async def test_a_peer_that_does_not_read_is_cut() -> None:
    send_queue: SendQueue[int] = SendQueue(limit=3)
    for number in range(4):
        send_queue.put(number)
    with pytest.raises(BatonError) as caught:
        [frame async for frame in send_queue.frames()]
    assert caught.value.reason is Reason.SLOW_CONSUMER


async def test_an_error_wakes_whoever_waits() -> None:
    send_queue: SendQueue[int] = SendQueue()
    waiting = asyncio.ensure_future(anext(send_queue.frames()))
    await asyncio.sleep(0)
    send_queue.end(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await waiting
