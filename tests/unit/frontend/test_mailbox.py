"""What a mailbox promises to those who deliver and to the one who reads."""

import asyncio

import pytest

from baton.rpc.errors import BatonError, Reason
from baton.v1 import common_pb2
from services.frontend.mailbox import LIMIT_BYTES, Lost, Mailbox, Tokens


def box(cuts: list[bool] | None = None) -> Mailbox:
    return Mailbox(lambda: None if cuts is None else cuts.append(True))


async def test_tokens_that_follow_on_each_other_are_joined() -> None:
    mailbox = box()
    for position in range(3):
        mailbox.tokens(1, 0, position, [position], [])
    mailbox.tokens(1, 0, 7, [7], [])
    mailbox.tokens(1, 1, 8, [8], [])
    mailbox.tokens(2, 1, 9, [9], [])
    mail = await mailbox.get()
    assert [one.token_ids for one in mail if isinstance(one, Tokens)] == [[0, 1, 2], [7], [8], [9]]


async def test_mail_comes_in_order_and_wakes_the_reader() -> None:
    mailbox = box()
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    mailbox.put(Lost(1))
    mailbox.tokens(2, 0, 0, [1], [])
    first, second = await reader
    assert isinstance(first, Lost)
    assert isinstance(second, Tokens)


async def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    mailbox = box()
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    reader.cancel()
    mailbox.put(Lost(1))
    assert len(await mailbox.get()) == 1


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
        await mailbox.get()
    assert caught.value.reason is Reason.SLOW_CONSUMER
    assert cuts == [True]


async def test_reading_makes_room() -> None:
    cuts: list[bool] = []
    mailbox = box(cuts)
    for position in range(20_000):
        mailbox.tokens(1, 0, position, [1], [])
        if position % 1000 == 0:
            await mailbox.get()
    assert not cuts


async def test_a_failure_is_what_the_reader_gets() -> None:
    mailbox = box()
    mailbox.put(Lost(1))
    mailbox.fail(BatonError(Reason.DEADLINE, "late"))
    mailbox.fail(BatonError(Reason.INTERNAL, "later"))
    with pytest.raises(BatonError, match="late"):
        await mailbox.get()


async def test_a_nudge_wakes_the_reader_without_mail() -> None:
    mailbox = box()
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    mailbox.wake()
    assert await reader == []
