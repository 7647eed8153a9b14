"""OpenAI's client stores responses and continues them, at any frontend."""

import json
import re
from typing import Any

import httpx
import pytest

from baton.conversations import statements
from baton.conversations.background.statements import CLAIM as CLAIM_RESPONSES
from baton.conversations.compactions.statements import CLAIM as CLAIM_COMPACTIONS
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.webhooks.statements.deliveries import CLAIM as CLAIM_DELIVERIES
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

PERIODIC = CLAIM_RESPONSES, CLAIM_COMPACTIONS, CLAIM_DELIVERIES
"""Statements that frontends run at any time."""

OUTPUT = {"type": "function_call_output", "call_id": "x", "output": ""}
FEW: Any = {"model": MODEL, "max_output_tokens": 12, "temperature": 0}


async def test_turns_go_on_at_any_frontend_as_if_all_was_sent(frontends: Frontends) -> None:
    here, there = frontends.clients
    first = await here.responses.create(input="Hello", metadata={"team": "a"}, **FEW)
    assert first.store is True
    assert await there.responses.retrieve(first.id) == first
    last: Any = None
    async for event in await there.responses.create(
        input=[{"role": "user", "content": "And then?"}],
        previous_response_id=first.id,
        stream=True,
        **FEW,
    ):
        last = event
    second = last.response
    assert second.previous_response_id == first.id
    assert await here.responses.retrieve(second.id) == second

    sent: Any = [
        {"role": "user", "content": "Hello"},
        *first.to_dict()["output"],
        {"role": "user", "content": "And then?"},
    ]
    whole = await here.responses.create(input=sent, store=False, **FEW)
    assert whole.output_text == second.output_text
    assert whole.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens == whole.usage.input_tokens
    assert whole.store is False
    missing = await frontends.http[0].get(f"/v1/responses/{whole.id}")
    assert missing.status_code == 404

    items = await there.responses.input_items.list(second.id)
    assert [item.content[0].text for item in items.data] == ["And then?"]  # type: ignore[union-attr,index]
    await there.responses.delete(first.id)
    deleted = await frontends.http[0].get(f"/v1/responses/{first.id}")
    assert deleted.status_code == 404
    # What it said is still part of what continues it.
    third = await here.responses.create(input="So?", previous_response_id=second.id, **FEW)
    assert third.usage is not None
    assert third.usage.input_tokens > second.usage.input_tokens


async def test_input_items_come_in_pages(frontends: Frontends) -> None:
    (client, _), (http, _) = frontends.clients, frontends.http
    sent: Any = [{"role": "user", "content": f"{at}"} for at in range(5)]
    response = await client.responses.create(input=sent, **FEW)
    for order, texts in (("asc", "01234"), ("desc", "43210")):
        listed: Any = client.responses.input_items.list(response.id, limit=2, order=order)  # type: ignore[arg-type]
        assert "".join([item.content[0].text async for item in listed]) == texts
    unknown = await http.get(f"/v1/responses/{response.id}/input_items?after={response.id}")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "after")


async def test_what_a_client_saw_before_it_left_is_kept_as_incomplete(
    frontends: Frontends,
) -> None:
    here, there = frontends.clients
    slow = FEW | {"max_output_tokens": 2000, "ignore_eos": True}
    body = slow | {"input": "Hello", "stream": True}
    seen, ident = "", ""
    with paced():
        async with frontends.http[0].stream("POST", "/v1/responses", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    ident = ident or event["response"]["id"]
                    if event["type"] == "response.output_text.delta":
                        seen += event["delta"]
                    if len(seen) > 20:
                        break

    await eventually(lambda: is_stored(frontends.http[1], ident))
    response = await there.responses.retrieve(ident)
    assert response.status == "incomplete"
    assert response.output_text.startswith(seen)
    onward = await here.responses.create(input="Go on", previous_response_id=ident, **FEW)
    assert onward.status in ("completed", "incomplete")


async def is_stored(http: httpx.AsyncClient, ident: str) -> bool:
    return (await http.get(f"/v1/responses/{ident}")).status_code == 200


async def test_a_request_that_stores_nothing_reads_and_writes_nothing(
    frontends: Frontends,
) -> None:
    async with connected(state_settings(frontends.url)) as connection:
        await frontends.clients[0].responses.create(input="Hello", store=False, **FEW)
        for table in ("conversations", "items", "responses"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"previous_response_id": "resp_" + "0" * 32}, 404, None),
        ({"previous_response_id": "nonsense"}, 404, None),
        ({"previous_response_id": "resp_\0"}, 404, None),
        ({"metadata": {str(at): "" for at in range(17)}}, 400, "metadata"),
        (
            {"input": [{"type": "function_call_output", "call_id": "x", "output": ""}]},
            400,
            "input[0].call_id",
        ),
    ],
)
async def test_bad_input(
    frontends: Frontends, fields: dict[str, Any], status: int, param: str | None
) -> None:
    answer = await frontends.http[0].post("/v1/responses", json={"input": "hi", **FEW, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


async def test_any_text_comes_back_as_it_was_sent(frontends: Frontends) -> None:
    text = "a\0b\u2028c🤖\x7f"
    response = await frontends.clients[0].responses.create(input=text, **FEW)
    items = await frontends.clients[1].responses.input_items.list(response.id)
    assert items.data[0].content[0].text == text  # type: ignore[union-attr,index]


async def test_thirty_turns_find_what_the_turn_before_left_at_another_frontend(
    frontends: Frontends,
) -> None:
    block_tokens = 16
    previous, before = None, 0
    found, whole = [], []
    for number in range(30):
        client = frontends.clients[number % 2]
        response = await client.responses.create(
            input=f"Turn {number}", previous_response_id=previous, **FEW
        )
        assert response.usage is not None
        if previous is not None:
            cached = response.usage.input_tokens_details.cached_tokens
            # What is certain of the last turn: its prompt.
            found.append(cached)
            whole.append(before // block_tokens * block_tokens)
        previous, before = response.id, response.usage.input_tokens
        if number == 15:
            await frontends.cluster.empty_engines()
    assert all(one >= 0.95 * other for one, other in zip(found, whole, strict=True)), (found, whole)


async def test_items_may_be_sent_by_their_ids(frontends: Frontends) -> None:
    here, there = frontends.clients
    first = await here.responses.create(input="Hello", **FEW)
    ids = [(await here.responses.input_items.list(first.id)).data[0].id, first.output[0].id]
    named: Any = [{"type": "item_reference", "id": ident} for ident in ids]
    more: Any = [{"role": "user", "content": "And then?"}]
    by_name = await there.responses.create(input=[*named, *more], **FEW)
    continued = await there.responses.create(
        # It is there already.
        input=[{"id": ids[1]}, *more],  # type: ignore[list-item,typeddict-item]
        previous_response_id=first.id,
        **FEW,
    )
    assert by_name.output_text == continued.output_text
    assert by_name.usage is not None
    assert continued.usage is not None
    assert by_name.usage.input_tokens == continued.usage.input_tokens
    kept = await here.responses.input_items.list(by_name.id, order="asc")
    assert [item.type for item in kept.data] == ["message"] * 3
    assert not {item.id for item in kept.data} & set(ids)
    http = frontends.http[0]
    for name in ("msg_" + "0" * 32, ids[0].replace("msg", "rs"), first.id, "x", "\0"):
        body = FEW | {"input": [{"type": "item_reference", "id": name}]}
        answer = await http.post("/v1/responses", json=body)
        assert answer.status_code == 404, answer.text
    answer = await http.post("/v1/responses", json=FEW | {"input": [{"type": "item_reference"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].id")


async def test_a_turn_is_one_read_by_key_and_one_write(
    frontends: Frontends, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fetch = Database.fetch

    async def counted(self: Database, query: str, *values: object, **options: Any) -> Any:
        if query not in PERIODIC:
            asked.append(re.sub(r"\b\d{6}\b", "0", re.sub(r"_\d{6}\b", "", query)))  # months
        return await fetch(self, query, *values, **options)

    first = await frontends.clients[0].responses.create(input="Hello", **FEW)
    monkeypatch.setattr(Database, "fetch", counted)
    await frontends.clients[1].responses.create(input="So?", previous_response_id=first.id, **FEW)
    assert asked == [
        statements.HISTORY_OF_RESPONSE,
        statements.counting(statements.CONTINUE_TURN, 0),
    ]
    asked.clear()
    await frontends.clients[1].responses.create(input="So?", store=False, **FEW)
    assert asked == []


async def test_a_stored_conversation_is_cut_where_its_history_is(frontends: Frontends) -> None:
    long: Any = FEW | {"truncation": "auto", "instructions": "Be kind"}
    sent: list[Any] = []
    last: Any = None
    for turn in range(7):
        text = f"{turn} " + "It rains in Oslo and the sun shines in Rome. " * 70
        client = frontends.clients[turn % 2]
        previous = {} if last is None else {"previous_response_id": last.id}
        last = await client.responses.create(input=text, **previous, **long)
        sent += [{"role": "user", "content": text}, *last.to_dict()["output"]]
    whole = await client.responses.create(input=sent[:-1], store=False, **long)
    told = last.to_dict()["input_transformations"]
    assert told == whole.to_dict()["input_transformations"] != []
    assert last.usage.input_tokens == whole.usage.input_tokens
    assert last.output_text == whole.output_text
    assert (await client.responses.retrieve(last.id)).to_dict()["input_transformations"] == told
    refused = await frontends.http[0].post(
        "/v1/responses",
        json={"model": MODEL, "input": "Hi", "previous_response_id": last.id},
    )
    assert refused.json()["error"]["code"] == "context_length_exceeded"
