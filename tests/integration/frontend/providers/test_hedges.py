"""A second upstream that is asked, too, when the first token is late."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from baton.client import AsyncClient
from baton.tenancy.records.providers import ProviderModel
from tests.integration.frontend.providers.conftest import Provided
from tests.support.doubles.messages_upstream import message_says
from tests.support.doubles.upstream import Exchange, ScriptedUpstream, says
from tests.support.wait import eventually

SAMPLES = 20


async def hangs(exchange: Exchange) -> None:
    await exchange.gone.wait()


@pytest.fixture
async def second(provided: Provided) -> AsyncIterator[ScriptedUpstream]:
    """The upstream of another provider, with the other API; the first one's times are known."""
    async with ScriptedUpstream() as made:
        made.answer = message_says(("Also", " here"))
        other = ProviderModel(name="other", context_tokens=9000, output_tokens=1000, price="9/9/9")
        await provided.set(id="second", url=made.url, api="anthropic", models=(other,))
        first = provided.record().models[0]
        hedged = ProviderModel(
            name=first.name,
            upstream=first.upstream,
            context_tokens=first.context_tokens,
            output_tokens=first.output_tokens,
            price=first.price,
            hedge="other",
        )
        mark = ProviderModel(name="mark", context_tokens=9, output_tokens=2)
        await provided.set(models=(hedged, mark))
        for _ in range(SAMPLES):
            assert (await provided.ask()).status_code == 200
        assert not made.exchanges
        yield made


async def test_the_second_answers_and_is_billed_once(
    provided: Provided, second: ScriptedUpstream
) -> None:
    provided.upstream.answer = hangs
    answer = await provided.ask()
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "Also here"
    assert answer.json()["model"] == "gpt"
    late = provided.upstream.exchanges[-1]
    await eventually(late.gone.is_set)  # the loser is cancelled
    assert second.exchanges[0].body["model"] == "other"
    *before, record = await provided.recorded(SAMPLES + 1)
    assert {one["provider"] for one in before} == {"acme"}
    assert (record["provider"], record["model"]) == ("second", "gpt")
    assert record["cost_nanodollars"] == 5 * 1000 + 4 * 500 + 2 * 2000  # at the model's price


async def test_the_first_still_wins_if_it_is_earlier(
    provided: Provided, second: ScriptedUpstream
) -> None:
    async def after_the_second(exchange: Exchange) -> None:
        await eventually(lambda: second.exchanges)
        await says()(exchange)

    provided.upstream.answer, second.answer = after_the_second, hangs
    async with AsyncClient(provided.stage.grpc_address) as client:
        answer = await client.chat("Hi", model="gpt").answer()
    assert (answer.text, answer.provider) == ("Hello there", "acme")
    (asked,) = second.exchanges
    await eventually(asked.gone.is_set)


async def test_one_that_fails_leaves_it_to_the_other(
    provided: Provided, second: ScriptedUpstream
) -> None:
    async def after_the_second(exchange: Exchange) -> None:
        await eventually(lambda: second.exchanges)
        await says()(exchange)

    provided.upstream.answer = after_the_second
    second.answer = lambda exchange: exchange.refuse(401)
    assert (await provided.ask()).json()["choices"][0]["message"]["content"] == "Hello there"
    assert len(second.exchanges) == 1


async def test_a_client_that_leaves_ends_both(provided: Provided, second: ScriptedUpstream) -> None:
    provided.upstream.answer = second.answer = hangs
    asked = len(provided.upstream.exchanges)
    asking = asyncio.create_task(provided.ask())
    await eventually(lambda: second.exchanges)
    asking.cancel()
    for exchange in (provided.upstream.exchanges[asked], second.exchanges[0]):
        await eventually(exchange.gone.is_set)
    with pytest.raises(asyncio.CancelledError):
        await asking
