"""What a mailbox promises to those who deliver and to the one who reads."""

import asyncio
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.workers.event_buffer import LIMIT_BYTES, Lost, Mail, Mailbox, Tokens


def box(cuts: list[bool] | None = None) -> Mailbox:
    return Mailbox(lambda: None if cuts is None else cuts.append(True))


class Taker:
    """Keeps what it gets."""

    def __init__(self, enough: bool) -> None:
        self.got: list[Mail] = []
        self._enough = enough

    def take_tokens(
        self, stream_id: int, choice: int, position: int, token_ids: Any, logprobs: Any
    ) -> bool:
        return self.take(
            [Tokens(stream_id, choice, position, list(token_ids), list(logprobs))],
        )

    def take(self, mail: list[Mail]) -> bool:
        self.got.extend(mail)
        return self._enough


async def read(mailbox: Mailbox) -> list[Mail]:
    """What waits, or what comes next."""
    taker = Taker(enough=True)
    await mailbox.feed(taker)
    return taker.got


async def test_tokens_that_follow_on_each_other_are_joined() -> None:
    mailbox = box()
    for position in range(3):
        mailbox.tokens(1, 0, position, [position], [])
    mailbox.tokens(1, 0, 7, [7], [])
    mailbox.tokens(1, 1, 8, [8], [])
    mailbox.tokens(2, 1, 9, [9], [])
    mail = await read(mailbox)
    assert [one.token_ids for one in mail if isinstance(one, Tokens)] == [[0, 1, 2], [7], [8], [9]]


async def test_mail_comes_in_order_and_wakes_the_reader() -> None:
    mailbox = box()
    reader = asyncio.create_task(read(mailbox))
    await asyncio.sleep(0)
    mailbox.put(Lost(1))
    mailbox.tokens(2, 0, 0, [1], [])
    (first,) = await reader
    (second,) = await read(mailbox)
    assert isinstance(first, Lost)
    assert isinstance(second, Tokens)


async def test_mail_that_comes_after_a_reader_was_cancelled_waits_for_the_next() -> None:
    mailbox = box()
    reader = asyncio.create_task(read(mailbox))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait([reader])
    mailbox.put(Lost(1))
    assert len(await read(mailbox)) == 1


@pytest.mark.parametrize("logprobs", [0, 20])
async def test_a_full_mailbox_cuts_its_request_once(logprobs: int) -> None:
    cuts: list[bool] = []
    mailbox = box(cuts)
    top = [common_pb2.TopLogprob()] * logprobs
    entries = [common_pb2.TokenLogprob(top=top)] if logprobs else []
    delivered = 0
    while not cuts:
        mailbox.tokens(1, 0, delivered, [delivered], entries)
        delivered += 1
    assert LIMIT_BYTES / 5000 < delivered < LIMIT_BYTES / 30
    mailbox.put(Lost(1))
    with pytest.raises(BatonError) as caught:
        await read(mailbox)
    assert caught.value.reason is Reason.SLOW_CONSUMER
    assert cuts == [True]


async def test_reading_makes_room() -> None:
    cuts: list[bool] = []
    mailbox = box(cuts)
    for position in range(20_000):
        mailbox.tokens(1, 0, position, [1], [])
        if position % 1000 == 0:
            await read(mailbox)
    assert not cuts


async def test_a_failure_is_what_the_reader_gets() -> None:
    mailbox = box()
    mailbox.put(Lost(1))
    mailbox.fail(BatonError(Reason.DEADLINE, "late"))
    mailbox.fail(BatonError(Reason.INTERNAL, "later"))
    with pytest.raises(BatonError, match="late"):
        await read(mailbox)


async def test_a_nudge_wakes_the_reader_without_mail() -> None:
    mailbox = box()
    reader = asyncio.create_task(read(mailbox))
    await asyncio.sleep(0)
    mailbox.nudge()
    assert await reader == []


async def feeding(mailbox: Mailbox) -> tuple[asyncio.Task[None], list[Mail]]:
    """A reader that never has enough, and what it got."""
    taker = Taker(enough=False)
    reader = asyncio.create_task(mailbox.feed(taker))
    await asyncio.sleep(0)
    return reader, taker.got


async def test_whoever_delivers_hands_over_at_once() -> None:
    mailbox = box()
    reader, got = await feeding(mailbox)
    for position in range(3):
        mailbox.tokens(1, 0, position, [position], [])
        assert len(got) == position + 1
    reader.cancel()


async def test_what_is_held_waits_in_order_and_within_the_limit() -> None:
    cuts: list[bool] = []
    mailbox = box(cuts)
    reader, got = await feeding(mailbox)
    mailbox.hold()
    mailbox.tokens(1, 0, 0, [0], [])
    mailbox.put(Lost(2))
    mailbox.tokens(1, 0, 1, [1], [])
    assert got == []
    mailbox.resume()
    assert [type(mail) for mail in got] == [Tokens, Lost, Tokens]
    mailbox.hold()
    for position in range(LIMIT_BYTES):
        mailbox.tokens(1, 0, position, [1], [])
    assert cuts == [True]
    with pytest.raises(BatonError) as caught:
        await reader
    assert caught.value.reason is Reason.SLOW_CONSUMER


class Broken(Taker):
    """Has a bug."""

    def take(self, mail: list[Mail]) -> bool:
        raise ValueError("a bug")


async def test_a_reader_that_fails_harms_only_its_request() -> None:
    for deliver in (
        lambda mailbox: mailbox.put(Lost(1)),
        lambda mailbox: mailbox.tokens(1, 0, 0, [1], []),
    ):
        mailbox = box()
        reader = asyncio.create_task(mailbox.feed(Broken(enough=False)))
        await asyncio.sleep(0)
        deliver(mailbox)
        deliver(mailbox)  # as a link does, which knows nothing of it
        with pytest.raises(BatonError) as caught:
            await reader
        assert caught.value.reason is Reason.INTERNAL
