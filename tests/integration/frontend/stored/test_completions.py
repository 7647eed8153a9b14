"""OpenAI's client stores chat completions, and finds them at any frontend."""

import asyncio
from typing import Any

import openai
import pytest

from baton.postgres.connecting import connected
from tests.support.engine.model import MODEL
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends

pytestmark = pytest.mark.xdist_group("openai")

HELLO: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hello\0"}]},
]
FEW: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 8, "temperature": 0}


async def test_a_completion_is_found_as_it_was_answered(frontends: Frontends) -> None:
    here, there = frontends.clients
    metadata = {"team": "a", "nul": "\0"}
    made = await here.chat.completions.create(store=True, metadata=metadata, n=2, **FEW)
    found = (await there.chat.completions.retrieve(made.id)).to_dict()
    assert found.pop("metadata") == metadata
    assert found == made.to_dict()

    messages: Any = (await there.chat.completions.messages.list(made.id)).data
    assert [(one.id, one.role) for one in messages] == [
        (f"{made.id}-0", "system"),
        (f"{made.id}-1", "user"),
    ]
    assert messages[0].content == "Be brief."
    assert messages[1].content is None
    assert messages[1].content_parts[0].text == "Hello\0"

    changed: Any = await there.chat.completions.update(made.id, metadata={"team": "b"})
    assert changed.metadata == {"team": "b"}
    listed: Any = await here.chat.completions.list(metadata={"team": "b"})
    assert [one.id for one in listed.data] == [made.id]
    assert not (await here.chat.completions.list(metadata=metadata)).data

    deleted = await here.chat.completions.delete(made.id)
    assert (deleted.id, deleted.deleted) == (made.id, True)
    for method in (
        there.chat.completions.retrieve,
        there.chat.completions.delete,
        there.chat.completions.messages.list,
    ):
        with pytest.raises(openai.NotFoundError):
            await method(made.id)


async def test_a_stream_is_stored_as_the_whole_answer(frontends: Frontends) -> None:
    client = frontends.clients[0]
    whole = await client.chat.completions.create(store=True, logprobs=True, **FEW)
    ident = ""
    async for chunk in await client.chat.completions.create(
        store=True, stream=True, logprobs=True, **FEW
    ):
        ident = ident or chunk.id
        assert chunk.id == ident
    found, answered = (await client.chat.completions.retrieve(ident)).to_dict(), whole.to_dict()
    for body in (found, answered):
        for name in ("id", "created", "metadata", "usage"):
            body.pop(name, None)
    assert found == answered


async def test_completions_are_listed_in_pages(frontends: Frontends) -> None:
    (client, _), (http, _) = frontends.clients, frontends.http
    ids = []
    for at in range(5):
        made = await client.chat.completions.create(
            store=True, metadata={"half": str(at % 2)}, **FEW
        )
        ids.append(made.id)
    listed: Any
    for order, expected in (("asc", ids), ("desc", ids[::-1])):
        listed = client.chat.completions.list(limit=2, order=order)  # type: ignore[arg-type]
        assert [one.id async for one in listed] == expected
    listed = client.chat.completions.list(metadata={"half": "1"}, model=MODEL, limit=1)
    assert [one.id async for one in listed] == ids[1::2]
    for query in ("model=other", "model=%00", "metadata[half]=2", "metadata[%00]=%00"):
        empty = await http.get(f"/v1/chat/completions?{query}")
        assert empty.json() == {
            "object": "list",
            "data": [],
            "first_id": None,
            "last_id": None,
            "has_more": False,
        }
    for path, param in (
        ("?after=x", "after"),
        ("?limit=0", "limit"),
        ("?order=up", "order"),
        ("?metadata=x", "metadata"),
        ("?" + "&".join(f"metadata[{at}]=x" for at in range(17)), "metadata"),
        (f"/{ids[0]}/messages?after=x", "after"),
    ):
        refused = await http.get(f"/v1/chat/completions{path}")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_a_blocking_client_does_the_same(frontends: Frontends) -> None:
    def used() -> None:
        with openai.OpenAI(
            base_url=str(frontends.clients[0].base_url), api_key="none", max_retries=0
        ) as client:
            made = client.chat.completions.create(store=True, metadata={"a": "b"}, **FEW)
            found: Any = client.chat.completions.retrieve(made.id)
            assert (found.choices, found.metadata) == (made.choices, {"a": "b"})
            assert [one.id for one in client.chat.completions.list()] == [made.id]
            messages = list(client.chat.completions.messages.list(made.id, order="desc", limit=1))
            assert [one.id for one in messages] == [f"{made.id}-1", f"{made.id}-0"]
            client.chat.completions.update(made.id, metadata=None)
            emptied: Any = client.chat.completions.retrieve(made.id)
            assert emptied.metadata == {}
            assert client.chat.completions.delete(made.id).deleted

    await asyncio.to_thread(used)


async def test_what_is_not_to_be_stored_or_has_failed_is_not(frontends: Frontends) -> None:
    client, http = frontends.clients[0], frontends.http[0]
    await client.chat.completions.create(metadata={"a": "b"}, **FEW)
    await client.chat.completions.create(store=False, **FEW)
    body = FEW | {"stream": True, "store": True, "max_tokens": 2000, "ignore_eos": True}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            assert line.startswith("data: {")
            break
    for fields, param in (
        ({"metadata": {str(at): "" for at in range(17)}}, "metadata"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata"),
        ({"store": "yes"}, "store"),
        ({"max_tokens": -1}, "max_tokens"),
    ):
        refused = await http.post("/v1/chat/completions", json={"store": True, **FEW, **fields})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    for ident in ("chatcmpl-" + "0" * 32, "chatcmpl-x", "resp_" + "0" * 32, "%00", "x" * 200):
        missing = await http.get(f"/v1/chat/completions/{ident}")
        assert missing.status_code == 404
    async with connected(state_settings(frontends.url)) as connection:
        assert await connection.fetchval("select count(*) from completions") == 0
