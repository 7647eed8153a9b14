"""Responses in the background within a conversation, and how many there may be."""

from typing import Any

import openai
import pytest

from tests.integration.frontend.stored.test_background import FEW, LONG, ended
from tests.support.engine.pace import paced
from tests.support.services.cluster import READY_SECONDS
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")


async def test_a_turn_in_the_background_moves_its_conversation_on(frontends: Frontends) -> None:
    here, there = frontends.clients
    conversation = (await here.conversations.create()).id
    with paced():
        running = await here.responses.create(input="Hello", conversation=conversation, **LONG)
        other = await there.responses.create(input="Me too", conversation=conversation, **FEW)
        lost = await ended(here, other.id)
        assert (lost.status, lost.output) == ("failed", [])
        assert lost.error.code == "conversation_locked"
        assert conversation in lost.error.message
        assert (await there.conversations.items.list(conversation)).data == []
        await there.responses.cancel(running.id)
    assert (await ended(here, running.id)).status == "cancelled"
    kept = len((await here.conversations.items.list(conversation)).data)
    first = await ended(
        there, (await here.responses.create(input="Hi", conversation=conversation, **FEW)).id
    )
    items = (await there.conversations.items.list(conversation, order="asc")).data
    assert [item.role for item in items[kept:]] == ["user", "assistant"]
    assert items[-1].content[0].text == first.output_text
    second = await here.responses.create(input="And?", conversation=conversation, **FEW)
    found = await ended(there, second.id)
    assert found.usage.input_tokens > first.usage.input_tokens
    assert len((await here.conversations.items.list(conversation)).data) == kept + 4


async def test_more_than_a_frontend_runs_are_refused(frontends: Frontends) -> None:
    third = await frontends.cluster.start("frontend-2", {"conversations.max_background": 1})
    url = f"http://{third.instance.http_address}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def begun() -> Any:
            try:
                return await client.responses.create(input="Hello", **LONG)
            except openai.APIStatusError as error:  # its database is not there yet
                assert "max_background" not in error.message
                return None

        with paced():
            running: Any = await eventually(begun, READY_SECONDS)
            with pytest.raises(openai.InternalServerError) as refused:
                await client.responses.create(input="Hello", **FEW)
            assert refused.value.status_code == 503
            assert "conversations.max_background" in refused.value.message
            assert int(refused.value.response.headers["retry-after"]) > 0
            await client.responses.cancel(running.id)
        assert (await ended(client, running.id)).status == "cancelled"

        async def has_room() -> Any:
            try:
                return await client.responses.create(input="Hello", **FEW)
            except openai.InternalServerError:
                return None

        again: Any = await eventually(has_room)
        assert (await ended(client, again.id)).status in ("completed", "incomplete")
