"""Every method of openai-python's resources of what is stored: plain, raw and streamed responses,
with the blocking client and the one for asyncio."""

import asyncio
import inspect
from collections.abc import Generator
from functools import reduce
from typing import Any

import openai
import pytest

from tests.support.engine.model import MODEL
from tests.support.state.frontends import Frontends

pytestmark = pytest.mark.xdist_group("openai")

RESOURCES = (
    *("conversations", "conversations.items"),
    *("responses", "responses.input_items", "responses.input_tokens"),
    *("chat.completions", "chat.completions.messages"),
)
ELSEWHERE = {"responses.stream", "responses.parse", "responses.connect"}
ELSEWHERE |= {"chat.completions.stream", "chat.completions.parse"}
"""Methods that call others, or another protocol."""
MODES = ("plain", "with_raw_response", "with_streaming_response")
ITEM: Any = {"type": "message", "role": "user", "content": "Hello"}
FEW: Any = {"model": MODEL, "temperature": 0}
Step = tuple[str, dict[str, Any]]


def steps() -> Generator[Step, Any, None]:
    """Yield a method and its arguments, and take what it returned."""
    made = yield "conversations.create", {"items": [ITEM], "metadata": {"team": "a"}}
    conv: Any = {"conversation_id": made.id}
    assert (yield "conversations.retrieve", conv) == made
    changed = yield "conversations.update", {**conv, "metadata": {"team": "b"}}
    assert changed.metadata == {"team": "b"}
    added = yield "conversations.items.create", {**conv, "items": [ITEM, ITEM], "include": []}
    last = added.data[-1]
    listed = yield "conversations.items.list", {**conv, "limit": 1, "order": "desc", "include": []}
    assert (listed.data, listed.has_more) == ([last], True)
    item = {**conv, "item_id": last.id}
    assert (yield "conversations.items.retrieve", {**item, "include": []}) == last
    assert (yield "conversations.items.delete", item) == changed

    response = yield (
        "responses.create",
        {"input": "So?", "conversation": made.id, "max_output_tokens": 8, **FEW},
    )
    resp = {"response_id": response.id}
    assert (yield "responses.retrieve", {**resp, "include": [], "stream": False}) == response
    items = yield "responses.input_items.list", {**resp, "limit": 5, "order": "asc", "include": []}
    assert [one.content[0].text for one in items.data] == ["So?"]
    counted = yield "responses.input_tokens.count", {"input": "So?", "model": MODEL}
    assert counted.input_tokens > 0
    short = yield "responses.compact", {"model": MODEL, "input": [ITEM, ITEM]}
    assert short.object == "response.compaction"
    long: Any = {"background": True, "extra_body": {"ignore_eos": True}}
    begun = yield "responses.create", {"input": "Go on", **long, **FEW}
    assert (yield "responses.cancel", {"response_id": begun.id}).status == "cancelled"
    for ident in (begun.id, response.id):
        assert (yield "responses.delete", {"response_id": ident}) is None
    deleted = yield "conversations.delete", conv
    assert (deleted.id, deleted.deleted) == (made.id, True)

    message = {"role": "user", "content": "Hello"}
    stored: Any = {"messages": [message], "store": True, "metadata": {"run": made.id}}
    answer = yield "chat.completions.create", {**stored, "max_tokens": 8, **FEW}
    completion = {"completion_id": answer.id}
    assert (yield "chat.completions.retrieve", completion).choices == answer.choices
    updated = yield "chat.completions.update", {**completion, "metadata": {"run": "x" + made.id}}
    assert updated.metadata == {"run": "x" + made.id}
    found = yield (
        "chat.completions.list",
        {"metadata": updated.metadata, "limit": 2, "model": MODEL},
    )
    assert [one.id for one in found.data] == [answer.id]
    messages = yield "chat.completions.messages.list", {**completion, "limit": 1, "order": "asc"}
    assert [one.content for one in messages.data] == ["Hello"]
    assert (yield "chat.completions.delete", completion).deleted


def resource_of(client: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), client)


def blocking(client: openai.OpenAI, mode: str) -> set[str]:
    """Run all steps; return the methods that were called."""
    todo, result, called = steps(), None, set[str]()
    while (step := _next(todo, result)) is not None:
        resource, _, method = step[0].rpartition(".")
        called.add(step[0])
        target = resource_of(client, resource)
        if mode == "plain":
            result = getattr(target, method)(**step[1])
            continue
        call = getattr(getattr(target, mode), method)
        if mode == "with_raw_response":
            result = call(**step[1]).parse()
        else:
            with call(**step[1]) as response:
                result = response.parse()
            assert response.is_closed
    return called


async def with_asyncio(client: openai.AsyncOpenAI, mode: str) -> set[str]:
    """As `blocking`."""
    todo, result, called = steps(), None, set[str]()
    while (step := _next(todo, result)) is not None:
        resource, _, method = step[0].rpartition(".")
        called.add(step[0])
        target = resource_of(client, resource)
        if mode == "plain":
            result = await getattr(target, method)(**step[1])
            continue
        call = getattr(getattr(target, mode), method)
        if mode == "with_raw_response":
            result = (await call(**step[1])).parse()
        else:
            async with call(**step[1]) as response:
                result = await response.parse()
            assert response.is_closed
    return called


def _next(todo: Generator[Step, Any, None], result: Any) -> Step | None:
    try:
        return todo.send(result)
    except StopIteration:
        return None


async def test_every_method_of_every_resource(frontends: Frontends) -> None:
    (client, _) = frontends.clients
    methods = {
        f"{name}.{method}"
        for name in RESOURCES
        for method, function in vars(type(resource_of(client, name))).items()
        if inspect.isfunction(function) and not method.startswith("_")
    }
    with openai.OpenAI(base_url=client.base_url, api_key="none", max_retries=0) as plain:
        for mode in MODES:
            for called in (
                await with_asyncio(client, mode),
                await asyncio.to_thread(blocking, plain, mode),
            ):
                assert called == methods - ELSEWHERE
