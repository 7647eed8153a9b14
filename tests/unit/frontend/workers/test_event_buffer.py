"""The promises of an EventBuffer to its producers and its consumer."""

import asyncio
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.workers.event_buffer import EventBuffer
from services.frontend.workers.events import StreamEvent, StreamLost, TokensReceived

LIMIT_BYTES = 192 * 1024


def box(cuts: list[bool] | None = None) -> EventBuffer:
    return EventBuffer(lambda: None if cuts is None else cuts.append(True), LIMIT_BYTES)


class Taker:
    """Keeps what it gets."""

    def __init__(self, enough: bool) -> None:
        self.got: list[StreamEvent] = []
        self._enough = enough

    def take_tokens(
        self, stream_id: int, choice: int, position: int, token_ids: Any, logprobs: Any
    ) -> bool:
        return self.take(
            [TokensReceived(stream_id, choice, position, list(token_ids), list(logprobs))],
        )

    def take(self, events: list[StreamEvent]) -> bool:
        self.got.extend(events)
        return self._enough


async def read(buffer: EventBuffer) -> list[StreamEvent]:
    """What waits, or what comes next."""
    taker = Taker(enough=True)
    await buffer.run(taker)
    return taker.got


async def test_tokens_that_follow_on_each_other_are_joined() -> None:
    buffer = box()
    for position in range(3):
        buffer.put_tokens(1, 0, position, [position], [])
    buffer.put_tokens(1, 0, 7, [7], [])
    buffer.put_tokens(1, 1, 8, [8], [])
    buffer.put_tokens(2, 1, 9, [9], [])
    events = await read(buffer)
    assert [one.token_ids for one in events if isinstance(one, TokensReceived)] == [
        [0, 1, 2],
        [7],
        [8],
        [9],
    ]


async def test_mail_comes_in_order_and_wakes_the_reader() -> None:
    buffer = box()
    reader = asyncio.create_task(read(buffer))
    await asyncio.sleep(0)
    buffer.put(StreamLost(1))
    buffer.put_tokens(2, 0, 0, [1], [])
    (first,) = await reader
    (second,) = await read(buffer)
    assert isinstance(first, StreamLost)
    assert isinstance(second, TokensReceived)


async def test_mail_that_comes_after_a_reader_was_cancelled_waits_for_the_next() -> None:
    buffer = box()
    reader = asyncio.create_task(read(buffer))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    buffer.put(StreamLost(1))
    assert len(await read(buffer)) == 1


@pytest.mark.parametrize("logprobs", [0, 20])
async def test_a_full_buffer_fails_its_request_once(logprobs: int) -> None:
    cuts: list[bool] = []
    buffer = box(cuts)
    top = [common_pb2.TopLogprob()] * logprobs
    entries = [common_pb2.TokenLogprob(top=top)] if logprobs else []
    delivered = 0
    while not cuts:
        buffer.put_tokens(1, 0, delivered, [delivered], entries)
        delivered += 1
    assert LIMIT_BYTES / 5000 < delivered < LIMIT_BYTES / 30
    buffer.put(StreamLost(1))
    with pytest.raises(BatonError) as caught:
        await read(buffer)
    assert caught.value.reason is Reason.SLOW_CONSUMER
    assert cuts == [True]


async def test_reading_makes_room() -> None:
    cuts: list[bool] = []
    buffer = box(cuts)
    for position in range(20_000):
        buffer.put_tokens(1, 0, position, [1], [])
        if position % 1000 == 0:
            await read(buffer)
    assert not cuts


async def test_a_failure_is_what_the_reader_gets() -> None:
    buffer = box()
    buffer.put(StreamLost(1))
    buffer.fail(BatonError(Reason.DEADLINE, "late"))
    buffer.fail(BatonError(Reason.INTERNAL, "later"))
    with pytest.raises(BatonError, match="late"):
        await read(buffer)


async def test_a_wake_calls_the_consumer_without_events() -> None:
    buffer = box()
    reader = asyncio.create_task(read(buffer))
    await asyncio.sleep(0)
    buffer.wake()
    assert await reader == []


async def feeding(buffer: EventBuffer) -> tuple[asyncio.Task[None], list[StreamEvent]]:
    """A reader that never has enough, and what it got."""
    taker = Taker(enough=False)
    reader = asyncio.create_task(buffer.run(taker))
    await asyncio.sleep(0)
    return reader, taker.got


async def test_whoever_delivers_hands_over_at_once() -> None:
    buffer = box()
    reader, got = await feeding(buffer)
    for position in range(3):
        buffer.put_tokens(1, 0, position, [position], [])
        assert len(got) == position + 1
    reader.cancel()


async def test_what_comes_together_is_handed_over_together() -> None:
    calls: list[list[StreamEvent]] = []

    class Counting(Taker):
        def take(self, events: list[StreamEvent]) -> bool:
            calls.append(events)
            return super().take(events)

    buffer, taker = box(), Counting(enough=False)
    reader = asyncio.create_task(buffer.run(taker))
    await asyncio.sleep(0)
    buffer.put_all([StreamLost(1), StreamLost(2)])
    assert [len(one) for one in calls] == [2]
    buffer.pause()
    buffer.put_all([StreamLost(3), StreamLost(4)])
    buffer.put_all([StreamLost(5)])
    assert len(taker.got) == 2
    buffer.resume()
    assert [one.stream_id for one in taker.got if isinstance(one, StreamLost)] == [1, 2, 3, 4, 5]
    failure = BatonError(Reason.CANCELLED, "over")
    buffer.fail(failure)
    buffer.put_all([StreamLost(6)])
    assert len(taker.got) == 5
    with pytest.raises(BatonError):
        await reader


async def test_while_paused_events_wait_in_order_and_within_the_limit() -> None:
    cuts: list[bool] = []
    buffer = box(cuts)
    reader, got = await feeding(buffer)
    buffer.pause()
    buffer.put_tokens(1, 0, 0, [0], [])
    buffer.put(StreamLost(2))
    buffer.put_tokens(1, 0, 1, [1], [])
    assert got == []
    buffer.resume()
    assert [type(event) for event in got] == [TokensReceived, StreamLost, TokensReceived]
    buffer.pause()
    for position in range(LIMIT_BYTES):
        buffer.put_tokens(1, 0, position, [1], [])
    assert cuts == [True]
    with pytest.raises(BatonError) as caught:
        await reader
    assert caught.value.reason is Reason.SLOW_CONSUMER


async def test_streams_are_held_while_much_waits() -> None:
    holds: list[bool] = []
    buffer = EventBuffer(lambda: None, LIMIT_BYTES, holds.append)
    reader, got = await feeding(buffer)
    buffer.pause()
    position = 0
    while not holds:
        buffer.put_tokens(1, 0, position, [1], [])
        position += 1
    # Three quarters are left for what is under way.
    assert 0.2 * LIMIT_BYTES < 40 * position < 0.3 * LIMIT_BYTES
    buffer.put(StreamLost(2))
    assert holds == [True]
    buffer.resume()
    assert holds == [True, False]
    assert sum(len(one.token_ids) for one in got if isinstance(one, TokensReceived)) == position
    reader.cancel()


async def test_streams_stay_held_where_taking_what_waits_is_enough_for_the_client() -> None:
    class Unread(Taker):
        """Its client reads none of what waited."""

        def take(self, events: list[StreamEvent]) -> bool:
            buffer.pause()
            return super().take(events)

    holds: list[bool] = []
    buffer = EventBuffer(lambda: None, LIMIT_BYTES, holds.append)
    reader = asyncio.create_task(buffer.run(Unread(enough=False)))
    await asyncio.sleep(0)
    buffer.pause()
    for position in range(2000):
        buffer.put_tokens(1, 0, position, [1], [])
    buffer.resume()
    assert holds == [True]
    buffer.resume()
    assert holds == [True, False]
    reader.cancel()


async def test_log_probabilities_that_wait_take_little_more_than_on_the_wire() -> None:
    """Of eight choices, each with 20 alternatives, and joined by choice."""
    top = [common_pb2.TopLogprob(token_id=1000 + rank, logprob=-rank) for rank in range(20)]
    cuts: list[bool] = []
    buffer = box(cuts)
    for position in range(80):
        for choice in range(8):
            entry = common_pb2.TokenLogprob(logprob=-0.5 - position, top=top)
            buffer.put_tokens(choice + 1, choice, position, [position], [entry])
    assert not cuts
    events = await read(buffer)
    assert len(events) == 8
    for choice, event in enumerate(events):
        assert isinstance(event, TokensReceived)
        assert (event.stream_id, event.choice, event.position) == (choice + 1, choice, 0)
        assert event.token_ids == list(range(80))
        assert [one.logprob for one in event.logprobs] == [-0.5 - at for at in range(80)]
        assert all(list(one.top) == top for one in event.logprobs)


class Broken(Taker):
    """Has a bug."""

    def take(self, events: list[StreamEvent]) -> bool:
        raise ValueError("a bug")


async def test_a_reader_that_fails_harms_only_its_request() -> None:
    for deliver in (
        lambda buffer: buffer.put(StreamLost(1)),
        lambda buffer: buffer.put_tokens(1, 0, 0, [1], []),
    ):
        buffer = box()
        reader = asyncio.create_task(buffer.run(Broken(enough=False)))
        await asyncio.sleep(0)
        deliver(buffer)
        deliver(buffer)  # as a connection does, which knows nothing of it
        with pytest.raises(BatonError) as caught:
            await reader
        assert caught.value.reason is Reason.INTERNAL
