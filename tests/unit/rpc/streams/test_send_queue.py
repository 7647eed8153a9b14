"""What a stream has to send: in order, bounded, bulk data made only as it is sent."""

import asyncio
from collections import deque

from baton.errors import BatonError, Reason
from baton.rpc.streams.send_queue import SendQueue


class Sent(list[int]):
    """What a queue sends, and how it ends."""

    def __init__(self, queue: SendQueue[int, int], *, room: int = 100) -> None:
        super().__init__()
        self.ends: list[BaseException | None] = []
        self.room = room
        queue.attach(self.send, self.ends.append)

    def send(self, message: int) -> bool:
        self.append(message)
        return len(self) < self.room


async def turn() -> None:
    """Let the loop do what is due."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_frames_come_in_order_until_the_end() -> None:
    queue: SendQueue[int, int] = SendQueue()
    sent = Sent(queue)
    for number in range(3):
        queue.put(number)
    queue.end()
    queue.put(99)
    await turn()
    assert (sent, sent.ends) == ([0, 1, 2], [None])


async def test_what_comes_in_one_turn_is_packed_together() -> None:
    def total(frames: deque[int]) -> int:
        packed = sum(frames)
        frames.clear()
        return packed

    queue: SendQueue[int, int] = SendQueue(total)
    sent = Sent(queue)
    for number in (1, 2, 3):
        queue.put(number)
    await turn()
    queue.put(4)
    await turn()
    assert sent == [6, 4]


async def test_nothing_is_sent_to_a_peer_that_does_not_read() -> None:
    queue: SendQueue[int, int] = SendQueue()
    sent = Sent(queue, room=2)
    for number in range(5):
        queue.put(number)
    queue.end()
    await turn()
    assert (sent, sent.ends, len(queue)) == ([0, 1], [], 3)
    sent.room = 100
    queue.resume()
    await turn()
    assert (sent, sent.ends) == ([0, 1, 2, 3, 4], [None])


async def test_bulk_is_made_only_when_nothing_else_waits() -> None:
    bulk = [10, 11]
    queue: SendQueue[int, int] = SendQueue(more=lambda: bulk.pop(0) if bulk else None)
    sent = Sent(queue, room=2)
    queue.put(1)
    await turn()
    assert sent == [1, 10]
    queue.put(2)
    sent.room = 100
    queue.resume()
    await turn()
    assert sent == [1, 10, 2, 11]
    bulk.append(12)
    queue.wake()
    await turn()
    assert sent[4:] == [12]


async def test_a_frame_too_many_fails_the_queue() -> None:
    queue: SendQueue[int, int] = SendQueue(limit=3)
    sent = Sent(queue)
    assert [queue.put(number) for number in range(4)] == [True, True, True, False]
    (error,) = sent.ends
    assert isinstance(error, BatonError)
    assert error.reason is Reason.SLOW_CONSUMER
    await turn()
    assert sent == []


async def test_room_is_told_when_there_is_some_or_the_queue_fails() -> None:
    queue: SendQueue[int, int] = SendQueue()
    sent = Sent(queue, room=2)
    for number in range(4):
        queue.put(number)
    waits = [asyncio.create_task(queue.wait_below(count)) for count in (3, 1)]
    await turn()
    assert [wait.done() for wait in waits] == [True, False]
    queue.fail(ValueError("broken"))
    await turn()
    assert waits[1].done()
    assert [str(error) for error in sent.ends] == ["broken"]
