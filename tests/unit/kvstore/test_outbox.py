"""A stream's answers: in order, bounded, bulk data made only as it is sent."""

import asyncio

import pytest

from baton.errors import BatonError, Reason
from services.kvstore.api.send_queue import Outbox


async def test_frames_come_in_order_until_the_end() -> None:
    outbox: Outbox[int] = Outbox()
    for number in range(3):
        outbox.put(number)
    outbox.end()
    outbox.put(99)
    assert [frame async for frame in outbox.frames()] == [0, 1, 2]


async def test_bulk_is_made_only_when_nothing_else_waits() -> None:
    bulk = [10, 11]
    outbox: Outbox[int] = Outbox(more=lambda: bulk.pop(0) if bulk else None)
    outbox.put(1)
    frames = outbox.frames()
    assert [await anext(frames) for _ in range(2)] == [1, 10]
    outbox.put(2)
    assert [await anext(frames) for _ in range(2)] == [2, 11]
    bulk.append(12)
    outbox.wake()
    assert await anext(frames) == 12
    await frames.aclose()


async def test_a_peer_that_does_not_read_is_cut() -> None:
    outbox: Outbox[int] = Outbox(limit=3)
    for number in range(4):
        outbox.put(number)
    with pytest.raises(BatonError) as caught:
        [frame async for frame in outbox.frames()]
    assert caught.value.reason is Reason.SLOW_CONSUMER


async def test_an_error_wakes_whoever_waits() -> None:
    outbox: Outbox[int] = Outbox()
    waiting = asyncio.ensure_future(anext(outbox.frames()))
    await asyncio.sleep(0)
    outbox.end(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await waiting
