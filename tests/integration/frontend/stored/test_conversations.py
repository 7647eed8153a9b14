"""OpenAI's client manages conversations, and moves them on, at any frontend."""

import asyncio
from typing import Any

import openai
import pytest

from baton.postgres.connecting import connected
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

FEW: Any = {"model": MODEL, "max_output_tokens": 12, "temperature": 0}
UNKNOWN = "conv_" + "0" * 32


def said(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


BAD_REQUESTS: Any = (
    ("POST", "", {"items": [said("x")] * 21}, 400, "items"),
    ("POST", "", {"items": [{"type": "message", "role": "x"}]}, 400, "items[0].role"),
    ("POST", "", {"items": [{"type": "web_search_call"}]}, 400, "items[0].type"),
    ("POST", "", {"items": [1]}, 400, "items[0]"),
    ("POST", "", {"metadata": {str(at): "" for at in range(17)}}, 400, "metadata"),
    ("POST", "", {"metadata": {"k" * 65: ""}}, 400, "metadata"),
    ("POST", "", {"metadata": {"k": "v" * 513}}, 400, "metadata"),
    ("POST", "", {"metadata": {"k": 1}}, 400, "metadata"),
    ("POST", "", {"name": "x"}, 400, "name"),
    ("POST", "/{id}", {}, 400, "metadata"),
    ("POST", "/{id}/items", {"items": []}, 400, "items"),
    ("POST", "/{id}/items", {"items": [said("x")] * 21}, 400, "items"),
    ("GET", "/{id}/items?after=msg_1", None, 400, "after"),
    ("GET", "/{id}/items?limit=101", None, 400, "limit"),
    ("GET", "/{id}/items/msg_" + "0" * 32, None, 404, None),
    ("DELETE", "/{id}/items/nonsense", None, 404, None),
    ("POST", "/{id}/messages", {"content": 1}, 400, "content"),
    ("GET", f"/{UNKNOWN}", None, 404, None),
    ("GET", f"/{UNKNOWN}/items", None, 404, None),
    ("GET", f"/{UNKNOWN}/items/msg_" + "0" * 32, None, 404, None),
    ("POST", f"/{UNKNOWN}", {"metadata": {}}, 404, None),
    ("POST", f"/{UNKNOWN}/items", {"items": [said("x")]}, 404, None),
    ("DELETE", f"/{UNKNOWN}", None, 404, None),
    ("DELETE", "/resp_" + "0" * 32, None, 404, None),
)
BAD_TURNS: Any = (
    ({"conversation": UNKNOWN}, 404, None),
    ({"conversation": "x\0"}, 404, None),
    ({"conversation": 1}, 400, "conversation"),
    (
        {"conversation": {"id": UNKNOWN}, "previous_response_id": "resp_1"},
        400,
        "previous_response_id",
    ),
    ({"conversation": UNKNOWN, "store": False}, 400, "store"),
)


def texts(items: Any) -> list[str]:
    return [item.content[0].text for item in items]


async def test_a_conversation_has_its_items_and_metadata_until_it_is_deleted(
    frontends: Frontends,
) -> None:
    here, there = frontends.clients
    made = await here.conversations.create(items=[said("a"), said("b")], metadata={"team": "x"})
    assert await there.conversations.retrieve(made.id) == made
    assert made.metadata == {"team": "x"}
    changed = await there.conversations.update(made.id, metadata={"team": "y"})
    assert changed.metadata == {"team": "y"}
    assert await here.conversations.retrieve(made.id) == changed

    added = await there.conversations.items.create(made.id, items=[said("c"), said("d")])
    assert texts(added.data) == ["c", "d"]
    for order, expected in (("asc", "abcd"), ("desc", "dcba")):
        listed = here.conversations.items.list(made.id, limit=3, order=order)
        assert "".join(texts([item async for item in listed])) == expected
    item: Any = await here.conversations.items.retrieve(
        added.data[0].id or "", conversation_id=made.id
    )
    assert item == added.data[0]
    assert (await here.conversations.items.delete(item.id, conversation_id=made.id)).id == made.id
    listed = there.conversations.items.list(made.id, order="asc")
    assert texts([one async for one in listed]) == ["a", "b", "d"]
    with pytest.raises(openai.NotFoundError):
        await here.conversations.items.retrieve(item.id, conversation_id=made.id)

    assert (await here.conversations.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await there.conversations.retrieve(made.id)
    async with connected(state_settings(frontends.url)) as connection:
        for table in ("conversations", "items", "responses"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0


async def test_responses_move_a_conversation_on_as_if_all_was_sent(frontends: Frontends) -> None:
    here, there = frontends.clients
    made = await here.conversations.create(items=[said("Hello")])
    first = await there.responses.create(conversation=made.id, input="My name is Ada", **FEW)
    assert first.conversation is not None
    assert first.conversation.id == made.id
    assert await here.responses.retrieve(first.id) == first
    last: Any = None
    async for event in await here.responses.create(
        conversation={"id": made.id}, input="And then?", stream=True, **FEW
    ):
        last = event
    second = last.response
    items = [one async for one in there.conversations.items.list(made.id, order="asc")]
    shown = [item.to_dict() for item in items]
    assert shown[2:3] + shown[4:] == [
        one.to_dict() for response in (first, second) for one in response.output
    ]
    assert texts(items)[::2] == ["Hello", first.output_text, second.output_text]
    whole = await here.responses.create(input=shown[:4], store=False, **FEW)
    assert whole.output_text == second.output_text
    assert whole.usage is not None
    assert second.usage.input_tokens == whole.usage.input_tokens

    # A response that continues one of the conversation is not in it.
    aside = await there.responses.create(previous_response_id=first.id, input="Aside", **FEW)
    assert len([one async for one in here.conversations.items.list(made.id)]) == 5
    await here.conversations.delete(made.id)
    for response in (first, second):
        with pytest.raises(openai.NotFoundError):
            await there.responses.retrieve(response.id)
    onward = await here.responses.create(previous_response_id=aside.id, input="So?", **FEW)
    assert aside.usage is not None
    assert onward.usage is not None
    assert onward.usage.input_tokens > aside.usage.input_tokens


async def test_a_message_is_answered_in_a_conversation(frontends: Frontends) -> None:
    made = await frontends.clients[0].conversations.create()
    path = f"/v1/conversations/{made.id}/messages"
    here, there = frontends.http
    unnamed = await here.post(path, json={"content": "Hello"})
    assert (unnamed.status_code, unnamed.json()["error"]["param"]) == (400, "model")
    first = (await here.post(path, json={"content": "Hello", **FEW})).json()
    assert first["conversation"] == {"id": made.id}
    body = {"content": [{"type": "input_text", "text": "More"}], "max_output_tokens": 4}
    second = await there.post(path, json=body | {"stream": True})
    assert second.headers["content-type"] == "text/event-stream"
    assert '"type":"response.created"' in second.text
    items = frontends.clients[1].conversations.items.list(made.id, order="asc")
    shown = texts([one async for one in items])
    assert shown[:3] == ["Hello", first["output"][0]["content"][0]["text"], "More"]
    assert len(shown) == 4
    for field in ("input", "conversation", "previous_response_id"):
        wrong = await here.post(path, json={"content": "x", field: "y", **FEW})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, field)


async def test_of_eight_turns_at_once_one_moves_the_conversation_on(frontends: Frontends) -> None:
    here, there = frontends.clients
    made = await here.conversations.create(items=[said("Hello")])
    with paced():
        results = await asyncio.gather(
            *(
                (here, there)[at % 2].responses.create(
                    conversation=made.id, input=f"Number {at}", **FEW | {"max_output_tokens": 64}
                )
                for at in range(8)
            ),
            return_exceptions=True,
        )
    won = [one for one in results if not isinstance(one, BaseException)]
    lost = [one for one in results if isinstance(one, openai.ConflictError)]
    assert (len(won), len(lost)) == (1, 7)
    for error in lost:
        assert error.code == "conversation_locked"
        assert made.id in error.message
    items = [one async for one in there.conversations.items.list(made.id, order="asc")]
    assert texts(items)[2:] == [won[0].output_text]


async def test_a_turn_is_refused_before_it_runs_while_another_one_does(
    frontends: Frontends,
) -> None:
    (here, _), (_, there) = frontends.http, frontends.clients
    made = await there.conversations.create(items=[said("Hello")])
    body = {"model": MODEL, "ignore_eos": True, "stream": True, "conversation": made.id}
    streamed = here.stream("POST", "/v1/responses", json=body | {"input": "a"})
    with paced():
        async with streamed as answer:
            async for line in answer.aiter_lines():
                if "output_text.delta" in line:
                    break
            results = await asyncio.gather(
                *(
                    client.responses.create(conversation=made.id, input="b", **FEW)
                    for client in frontends.clients
                ),
                return_exceptions=True,
            )
    for error in results:
        assert isinstance(error, openai.ConflictError), error
        assert "has another response running" in error.message
    # Its client left: what it saw is the turn, and the next one is free.

    async def has_turn() -> bool:
        return len((await there.conversations.items.list(made.id)).data) >= 3

    await eventually(has_turn)
    await there.responses.create(conversation=made.id, input="b", **FEW)


async def test_bad_requests_about_conversations(frontends: Frontends) -> None:
    made = await frontends.clients[0].conversations.create(items=[said("Hello")])
    http = frontends.http[0]
    for method, path, body, status, param in BAD_REQUESTS:
        target = "/v1/conversations" + path.replace("{id}", made.id)
        answer = await http.request(method, target, json=body)
        found = answer.status_code, answer.json()["error"]["param"]
        assert found == (status, param), (method, path, answer.text)
    for fields, status, param in BAD_TURNS:
        answer = await http.post("/v1/responses", json={"input": "hi", **FEW, **fields})
        found = answer.status_code, answer.json()["error"]["param"]
        assert found == (status, param), (fields, answer.text)


async def test_texts_of_items_come_back_as_they_were_sent(frontends: Frontends) -> None:
    text = "a\0b\u2028c🤖\x7f"
    made = await frontends.clients[0].conversations.create(
        items=[said(text)], metadata={"k\0": text}
    )
    items = await frontends.clients[1].conversations.items.list(made.id)
    assert texts(items.data) == [text]
    assert (await frontends.clients[1].conversations.retrieve(made.id)).metadata == {"k\0": text}
    lone = b'{"items":[{"role":"user","content":"\\ud800"}]}'
    answer = await frontends.http[0].post(
        "/v1/conversations", content=lone, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed_body")
