"""Summaries take the place of the oldest turns, after answers, at any frontend, once."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from baton.postgres.connecting import connected
from tests.support.engine import pace
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

THRESHOLD = 512
MANAGED: Any = [{"type": "compaction", "compact_threshold": THRESHOLD}]
FEW: Any = {"model": MODEL, "max_output_tokens": 8, "temperature": 0, "instructions": "Be kind"}
WORDS = "the boat is on the lake and it is a good day for all of us to go and see it "


async def count(frontends: Frontends, metric: str) -> float:
    """Return the sum of series of all frontends, which begin with a name and labels."""
    texts = [(await http.get("/metrics")).text for http in frontends.http]
    lines = [line for text in texts for line in text.splitlines() if line.startswith(metric)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def written(frontends: Frontends) -> float:
    return await count(frontends, 'baton_frontend_summaries_total{reason="ok"}')


async def paid(frontends: Frontends) -> float:
    """Return how many requests for summaries ended."""
    texts = [(await http.get("/metrics")).text for http in frontends.http]
    found = re.findall(r'baton_frontend_requests_total\{.*"compaction".*\} (\S+)', "".join(texts))
    return sum(map(float, found))


@asynccontextmanager
async def rows(frontends: Frontends) -> AsyncIterator[asyncpg.Connection]:
    async with connected(state_settings(frontends.url)) as connection:
        yield connection


class Talk:
    """Turns of one chain, at the frontends in turn, until a summary is written."""

    def __init__(self, frontends: Frontends, **fields: Any) -> None:
        self._frontends = frontends
        self._http = frontends.http
        self._fields = FEW | {"context_management": MANAGED} | fields
        self.responses: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []

    async def say(self, at: int | None = None, **fields: Any) -> dict[str, Any]:
        turn = len(self.responses) if at is None else at
        last = self.responses[-1]["id"] if self.responses else None
        body = {"input": f"{turn} {WORDS}", "previous_response_id": last}
        answer = await self._http[turn % 2].post("/v1/responses", json=self._fields | body | fields)
        assert answer.status_code == 200, answer.text
        self.responses.append(answer.json())
        self.headers.append(answer.headers)
        return self.responses[-1]

    async def until_summary(self) -> None:
        before = await written(self._frontends)
        for _ in range(20):
            usage = (await self.say())["usage"]
            if usage["total_tokens"] > THRESHOLD:
                await eventually(lambda: self._written_after(before))
                return
        raise AssertionError("20 turns are below the threshold")

    async def _written_after(self, before: float) -> bool:
        return await written(self._frontends) > before


async def test_a_summary_takes_the_place_of_the_oldest_turns(frontends: Frontends) -> None:
    talk = Talk(frontends)
    before = await paid(frontends)
    await talk.until_summary()
    assert all(one["input_transformations"] == [] for one in talk.responses)
    assert await paid(frontends) == before + 1
    last = talk.responses[-1]
    after = await talk.say()
    (told,) = after["input_transformations"]
    assert (told["type"], told["action"], told["summary"]) == ("compaction", "replaced", True)
    assert told["items"] % 2 == 0
    assert 0 < told["items"] < 2 * len(talk.responses)
    header = f"items={told['items']}, tokens={told['tokens']}, summary=true"
    assert talk.headers[-1]["x-baton-truncated"] == header
    assert "x-baton-truncated" not in talk.headers[0]
    assert after["usage"]["input_tokens"] < last["usage"]["input_tokens"]
    # All that was said stays there, and a request that does not ask for summaries sees it.
    whole = await talk.say(context_management=None, previous_response_id=last["id"])
    assert whole["usage"]["input_tokens"] > last["usage"]["input_tokens"]
    assert whole["input_transformations"] == []
    listed = await frontends.clients[0].responses.input_items.list(talk.responses[0]["id"])
    assert [item.type for item in listed.data] == ["message"]
    async with rows(frontends) as connection:
        (row,) = await connection.fetch("select * from compactions")
    assert row["items"] == told["items"]
    assert "boat" not in row["body"]


async def test_two_answers_at_once_have_one_summary(frontends: Frontends) -> None:
    talk = Talk(frontends, context_management=None)
    while talk.responses[-1:] == [] or talk.responses[-1]["usage"]["total_tokens"] < THRESHOLD:
        await talk.say()
    before = await paid(frontends)
    # Both continue the same response: the second one begins a branch.
    await asyncio.gather(*(talk.say(at, context_management=MANAGED) for at in range(2)))
    await eventually(lambda: _all_written(frontends))
    async with rows(frontends) as connection:
        assert await connection.fetchval("select count(*) from compactions") == 1
    assert await paid(frontends) == before + 1
    for branch in talk.responses[-2:]:
        after = await talk.say(previous_response_id=branch["id"], context_management=MANAGED)
        assert [one["summary"] for one in after["input_transformations"]] == [True]


async def _all_written(frontends: Frontends) -> bool:
    async with rows(frontends) as connection:
        bodies = await connection.fetch("select body from compactions")
    return bool(bodies) and all(row["body"] for row in bodies)


async def test_a_conversation_goes_on_while_its_summary_is_written(frontends: Frontends) -> None:
    client = frontends.clients[0]
    conversation = await client.conversations.create()
    talk = Talk(frontends, conversation=conversation.id)
    with paced():
        while talk.responses[-1:] == [] or talk.responses[-1]["usage"]["total_tokens"] < THRESHOLD:
            await talk.say(previous_response_id=None)
        await talk.say(previous_response_id=None)  # does not wait for it, and is no conflict
    await eventually(lambda: _all_written(frontends))
    after = await talk.say(previous_response_id=None)
    assert [one["summary"] for one in after["input_transformations"]] == [True]
    items = [item async for item in client.conversations.items.list(conversation.id)]
    assert len(items) == 2 * len(talk.responses)
    assert {item.type for item in items} == {"message"}


async def test_a_summary_that_fails_is_told_and_the_next_turns_go_on(frontends: Frontends) -> None:
    talk = Talk(frontends)
    async with rows(frontends) as connection:
        await talk.until_summary()
        # As if its frontend had died before it was written, and the next one had failed.
        await connection.execute("update compactions set body = null, error = 'no_worker'")
        after = await talk.say()
        (told,) = after["input_transformations"]
        assert (told["action"], told["reason"], told["summary"]) == ("failed", "no_worker", False)
        assert talk.headers[-1]["x-baton-truncated"].endswith("error=no_worker")
        # The lease ends: the next answer is followed by another attempt.
        await connection.execute("update compactions set lease_until = now() - interval '1 hour'")
        await talk.say()
        await eventually(lambda: _all_written(frontends))
    told = (await talk.say())["input_transformations"]
    assert [one["summary"] for one in told] == [True]


async def test_summaries_are_of_stored_responses(frontends: Frontends) -> None:
    body = FEW | {"input": "hi", "context_management": MANAGED, "store": False}
    answer = await frontends.http[0].post("/v1/responses", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "context_management")
    assert "/v1/responses/compact" in error["message"]


async def test_a_request_that_does_not_fit_waits_for_a_summary(
    frontends: Frontends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "STEP_SECONDS", 0.1)  # a summary takes long
    managed: Any = [{"type": "compaction", "compact_threshold": 3000}]
    talk = Talk(frontends, context_management=None)
    while talk.responses[-1:] == [] or talk.responses[-1]["usage"]["total_tokens"] < 3000:
        await talk.say(input=WORDS * 40)
    with paced():
        last = await talk.say(context_management=managed)
        fields = {"input": WORDS * 60, "previous_response_id": last["id"]}
        waiting = asyncio.create_task(talk.say(context_management=managed, **fields))
        await eventually(lambda: _claimed(frontends))
        body = FEW | fields
        refused = await frontends.http[0].post("/v1/responses", json=body)
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert not waiting.done()
    told = (await waiting)["input_transformations"]
    assert [one["summary"] for one in told] == [True]


async def _claimed(frontends: Frontends) -> bool:
    async with rows(frontends) as connection:
        return bool(await connection.fetch("select 1 from compactions"))
