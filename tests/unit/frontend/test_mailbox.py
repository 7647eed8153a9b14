"""What a mailbox promises to those who deliver and to the one who reads."""

import asyncio

import pytest

from baton.rpc.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.mailbox import LIMIT_BYTES, Lost, Mail, Mailbox, Tokens


def box(cuts: list[bool] | None = None) -> Mailbox:
    return Mailbox(lambda: None if cuts is None else cuts.append(True))


async def read(mailbox: Mailbox) -> list[Mail]:
    """What waits, or what comes next."""
    got: list[Mail] = []

    def take(mail: list[Mail]) -> bool:
        got.extend(mail)
        return True

    await mailbox.feed(take)
    return got


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


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    mailbox = box()
    reader = asyncio.create_task(read(mailbox))
    await asyncio.sleep(0)
    reader.cancel()
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


async def feeding(mailbox: Mailbox, got: list[Mail]) -> asyncio.Task[None]:
    """A reader that never has enough."""

    def take(mail: list[Mail]) -> bool:
        got.extend(mail)
        return False

    reader = asyncio.create_task(mailbox.feed(take))
    await asyncio.sleep(0)
    return reader


async def test_whoever_delivers_hands_over_at_once() -> None:
    mailbox = box()
    got: list[Mail] = []
    reader = await feeding(mailbox, got)
    for position in range(3):
        mailbox.tokens(1, 0, position, [position], [])
        assert len(got) == position + 1
    reader.cancel()


async def test_what_is_held_waits_in_order_and_within_the_limit() -> None:
    cuts: list[bool] = []
    mailbox = box(cuts)
    got: list[Mail] = []
    reader = await feeding(mailbox, got)
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


async def test_a_handler_that_fails_harms_only_its_request() -> None:
    mailbox = box()

    def broken(mail: list[Mail]) -> bool:
        raise ValueError("a bug")

    reader = asyncio.create_task(mailbox.feed(broken))
    await asyncio.sleep(0)
    mailbox.put(Lost(1))
    with pytest.raises(BatonError) as caught:
        await reader
    assert caught.value.reason is Reason.INTERNAL
    mailbox.put(Lost(2))  # as a link does, which knows nothing of it
