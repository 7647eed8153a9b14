"""What a stream has to send: in order, bounded, bulk data made only as it is sent."""

import asyncio

import pytest

from baton.errors import BatonError, Reason
from baton.rpc.streams.send_queue import SendQueue


async def test_frames_come_in_order_until_the_end() -> None:
    queue: SendQueue[int, int] = SendQueue()
    for number in range(3):
        queue.put(number)
    queue.end()
    queue.put(99)
    assert [frame async for frame in queue.messages()] == [0, 1, 2]


async def test_bulk_is_made_only_when_nothing_else_waits() -> None:
    bulk = [10, 11]
    queue: SendQueue[int, int] = SendQueue(more=lambda: bulk.pop(0) if bulk else None)
    queue.put(1)
    messages = queue.messages()
    assert [await anext(messages) for _ in range(2)] == [1, 10]
    queue.put(2)
    assert [await anext(messages) for _ in range(2)] == [2, 11]
    bulk.append(12)
    queue.wake()
    assert await anext(messages) == 12
    await messages.aclose()


async def test_a_frame_too_many_fails_the_queue() -> None:
    queue: SendQueue[int, int] = SendQueue(limit=3)
    assert [queue.put(number) for number in range(4)] == [True, True, True, False]
    assert queue.failed.done()
    with pytest.raises(BatonError) as caught:
        [frame async for frame in queue.messages()]
    assert caught.value.reason is Reason.SLOW_CONSUMER


async def test_a_failure_is_raised_where_messages_are_awaited() -> None:
    queue: SendQueue[int, int] = SendQueue()
    waiting = asyncio.ensure_future(anext(queue.messages()))
    await asyncio.sleep(0)
    queue.fail(ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await waiting
