"""Conversations over gRPC are those over HTTP: the same rows, the same errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import pytest

from baton.client import ApiError, AsyncClient, ConflictError
from baton.client.errors import client_error
from baton.request.stream_events import Delta, Finished
from baton.v1 import conversations_pb2 as pb
from baton.v1.conversations_pb2_grpc import ConversationServiceStub
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

FEW: Any = {"model": MODEL, "max_tokens": 12, "temperature": 0}
UNKNOWN, NO_ITEM, NO_RESPONSE = ("_".join((kind, "0" * 32)) for kind in ("conv", "msg", "resp"))
TOOL: Any = {"name": "f", "parameters": {"type": "object", "properties": {}}}


def said(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


async def test_what_one_api_writes_the_other_reads(frontends: Frontends) -> None:
    ours, theirs = frontends.grpc[0].conversations, frontends.clients[1].conversations
    made = await ours.create([said("a"), said("b")], {"team": "x"})
    read = await theirs.retrieve(made.id)
    assert (read.id, read.created_at, read.metadata) == (
        made.id,
        made.created_seconds,
        {"team": "x"},
    )
    changed = await ours.update(made.id, {"team": "y"})
    assert changed == await frontends.grpc[1].conversations.get(made.id)
    (added,) = await ours.add_items(made.id, [said("c")])
    assert (await theirs.items.retrieve(added["id"], conversation_id=made.id)).to_dict() == added
    assert await ours.get_item(made.id, added["id"]) == added
    assert await ours.delete_item(made.id, added["id"]) == changed
    for ascending, order in ((True, "asc"), (False, "desc")):
        page = await ours.list_items(made.id, limit=1, ascending=ascending)
        rest = await ours.list_items(made.id, after=page.items[0]["id"], ascending=ascending)
        listed: Any = theirs.items.list(made.id, order=order)
        assert [*page.items, *rest.items] == [item.to_dict() async for item in listed]
        assert (page.has_more, rest.has_more) == (True, False)
    await ours.delete(made.id)
    with pytest.raises(ApiError) as caught:
        await ours.get(made.id)
    assert caught.value.reason == "NOT_FOUND"


async def test_a_message_is_answered_as_over_http(frontends: Frontends) -> None:
    (here, there), http = frontends.grpc, frontends.http[0]
    made = await here.conversations.create([said("Hello")])
    answer = await here.conversations.send(made.id, "My name is Ada", **FEW).answer()
    stream = there.conversations.send(made.id, [{"type": "text", "text": "More"}], max_tokens=4)
    pieces = [event.text async for event in stream if isinstance(event, Delta)]
    assert stream.started is not None
    other = await http.post("/v1/conversations", json={"items": [said("Hello")]})
    body = {"model": MODEL, "max_output_tokens": 12, "temperature": 0, "content": "My name is Ada"}
    same = await http.post(f"/v1/conversations/{other.json()['id']}/messages", json=body)
    assert answer.text == same.json()["output"][0]["content"][0]["text"]

    items = (await there.conversations.list_items(made.id, ascending=True)).items
    texts = [item["content"][0]["text"] for item in items]
    assert texts == ["Hello", "My name is Ada", answer.text, "More", "".join(pieces)]
    ident = stream.started.response_id
    stored = await here.conversations.get_response(ident)
    assert stored == (await http.get(f"/v1/responses/{ident}")).json()
    assert (stored["max_output_tokens"], stored["conversation"]) == (4, {"id": made.id})
    with pytest.raises(ApiError, match="only responses in the background can be cancelled"):
        await here.conversations.cancel_response(ident)
    await here.conversations.delete_response(ident)
    assert (await http.get(f"/v1/responses/{ident}")).status_code == 404


async def test_a_response_in_the_background_is_cancelled(frontends: Frontends) -> None:
    body = {"model": MODEL, "input": "Hello", "background": True, "ignore_eos": True}
    with paced():
        begun = (await frontends.http[0].post("/v1/responses", json=body)).json()
        ended = await frontends.grpc[1].conversations.cancel_response(begun["id"])
    assert ended["status"] == "cancelled"


async def test_outputs_of_tools_go_before_a_message(frontends: Frontends) -> None:
    ours = frontends.grpc[0].conversations
    made = await ours.create([said("Call it")])
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    await ours.add_items(made.id, [call])
    stream = ours.send(made.id, items=[output], tools=[TOOL], tool_choice="none", **FEW)
    await stream.answer()
    assert stream.started is not None
    stored = await ours.get_response(stream.started.response_id)
    assert (stored["tools"][0]["name"], stored["tool_choice"]) == ("f", "none")
    items = (await ours.list_items(made.id, ascending=True)).items
    assert [item["type"] for item in items[:3]] == ["message", call["type"], output["type"]]
    with pytest.raises(ApiError) as caught:
        await ours.send(made.id, items=[output | {"call_id": "c2"}], **FEW).answer()
    assert caught.value.field == "input[0].call_id"


async def test_of_eight_messages_at_once_one_moves_the_conversation_on(
    frontends: Frontends,
) -> None:
    made = await frontends.grpc[0].conversations.create([said("Hello")])

    async def turn(number: int) -> Any:
        ours = frontends.grpc[number % 2].conversations
        return await ours.send(made.id, f"{number}", **FEW | {"max_tokens": 64}).answer()

    with paced():
        results = await asyncio.gather(*map(turn, range(8)), return_exceptions=True)
    lost = [one for one in results if isinstance(one, ConflictError)]
    won = [one for one in results if not isinstance(one, BaseException)]
    assert (len(won), len(lost)) == (1, 7), results
    assert all(made.id in error.message for error in lost)
    assert {error.reason for error in lost} == {"CONVERSATION_LOCKED"}
    assert {error.code for error in lost} == {grpc.StatusCode.ABORTED}
    page = await frontends.grpc[1].conversations.list_items(made.id)
    assert page.items[0]["content"][0]["text"] == won[0].text


async def test_a_client_that_left_has_what_it_saw_in_the_conversation(
    frontends: Frontends,
) -> None:
    ours = frontends.grpc[0].conversations
    made = await ours.create([said("Hello")])
    stream = ours.send(made.id, "Go on", model=MODEL, ignore_eos=True)
    with paced():
        async with stream:
            async for event in stream:
                assert not isinstance(event, Finished)
                if len(stream.text) > 20:
                    break

    async def has_turn() -> bool:
        return len((await ours.list_items(made.id)).items) == 3

    await eventually(has_turn)
    assert stream.started is not None
    stored = await ours.get_response(stream.started.response_id)
    assert stored["status"] == "incomplete"
    assert stored["output"][0]["content"][0]["text"].startswith(stream.text)


Call = Callable[[AsyncClient, str], Awaitable[Any]]
MANY_KEYS = {str(at): "" for at in range(17)}
ITEMS_21 = [said("x")] * 21
BAD: tuple[tuple[str, str, Any, Call], ...] = (
    ("GET", f"/conversations/{UNKNOWN}", None, lambda c, _: c.conversations.get(UNKNOWN)),
    ("GET", "/conversations/x", None, lambda c, _: c.conversations.get("x")),
    ("GET", f"/conversations/{NO_RESPONSE}", None, lambda c, _: c.conversations.get(NO_RESPONSE)),
    ("GET", "/conversations/a%00b", None, lambda c, _: c.conversations.get("a\0b")),
    (
        "POST",
        f"/conversations/{UNKNOWN}",
        {"metadata": {}},
        lambda c, _: c.conversations.update(UNKNOWN, {}),
    ),
    ("DELETE", f"/conversations/{UNKNOWN}", None, lambda c, _: c.conversations.delete(UNKNOWN)),
    ("POST", "/conversations", {"items": ITEMS_21}, lambda c, _: c.conversations.create(ITEMS_21)),
    (
        "POST",
        "/conversations",
        {"metadata": MANY_KEYS},
        lambda c, _: c.conversations.create(metadata=MANY_KEYS),
    ),
    (
        "POST",
        "/conversations",
        {"metadata": {"k" * 65: ""}},
        lambda c, _: c.conversations.create(metadata={"k" * 65: ""}),
    ),
    (
        "POST",
        "/conversations",
        {"items": [said("x"), {"type": "message", "role": "x"}]},
        lambda c, _: c.conversations.create([said("x"), {"type": "message", "role": "x"}]),
    ),
    (
        "POST",
        "/conversations",
        {"items": [{"type": "web_search_call"}]},
        lambda c, _: c.conversations.create([{"type": "web_search_call"}]),
    ),
    ("POST", "/conversations", {"items": [1]}, lambda c, _: c.conversations.create([1])),  # type: ignore[list-item]
    (
        "POST",
        "/conversations/{id}/items",
        {"items": []},
        lambda c, ident: c.conversations.add_items(ident, []),
    ),
    (
        "POST",
        "/conversations/{id}/items",
        {"items": ITEMS_21},
        lambda c, ident: c.conversations.add_items(ident, ITEMS_21),
    ),
    (
        "POST",
        f"/conversations/{UNKNOWN}/items",
        {"items": [said("x")]},
        lambda c, _: c.conversations.add_items(UNKNOWN, [said("x")]),
    ),
    (
        "GET",
        "/conversations/{id}/items?limit=101",
        None,
        lambda c, ident: c.conversations.list_items(ident, limit=101),
    ),
    (
        "GET",
        "/conversations/{id}/items?after=msg_1",
        None,
        lambda c, ident: c.conversations.list_items(ident, after="msg_1"),
    ),
    (
        "GET",
        f"/conversations/{UNKNOWN}/items",
        None,
        lambda c, _: c.conversations.list_items(UNKNOWN),
    ),
    (
        "GET",
        f"/conversations/{{id}}/items/{NO_ITEM}",
        None,
        lambda c, ident: c.conversations.get_item(ident, NO_ITEM),
    ),
    (
        "DELETE",
        "/conversations/{id}/items/x",
        None,
        lambda c, ident: c.conversations.delete_item(ident, "x"),
    ),
    (
        "POST",
        "/conversations/{id}/messages",
        {"content": "", "model": MODEL},
        lambda c, ident: c.conversations.send(ident, "", model=MODEL).answer(),
    ),
    (
        "POST",
        "/conversations/{id}/messages",
        {"content": "x"},
        lambda c, ident: c.conversations.send(ident, "x").answer(),
    ),
    (
        "POST",
        "/conversations/{id}/messages",
        {"content": "x", "model": "other"},
        lambda c, ident: c.conversations.send(ident, "x", model="other").answer(),
    ),
    (
        "POST",
        "/conversations/{id}/messages",
        {"content": "x", "model": MODEL, "metadata": MANY_KEYS},
        lambda c, ident: c.conversations.send(ident, "x", model=MODEL, metadata=MANY_KEYS).answer(),
    ),
    (
        "POST",
        "/conversations/{id}/messages",
        {"content": "x", "model": MODEL, "temperature": -1},
        lambda c, ident: c.conversations.send(ident, "x", model=MODEL, temperature=-1).answer(),
    ),
    (
        "POST",
        f"/conversations/{UNKNOWN}/messages",
        {"content": "x", "model": MODEL},
        lambda c, _: c.conversations.send(UNKNOWN, "x", model=MODEL).answer(),
    ),
    (
        "GET",
        f"/responses/{NO_RESPONSE}",
        None,
        lambda c, _: c.conversations.get_response(NO_RESPONSE),
    ),
    (
        "POST",
        f"/responses/{NO_RESPONSE}/cancel",
        {},
        lambda c, _: c.conversations.cancel_response(NO_RESPONSE),
    ),
    ("DELETE", "/responses/x", None, lambda c, _: c.conversations.delete_response("x")),
)


async def test_bad_input_has_one_answer(frontends: Frontends) -> None:
    made = await frontends.grpc[0].conversations.create([said("Hello")])
    for method, path, body, call in BAD:
        over_http = await answer_of(frontends.http[0], method, path.replace("{id}", made.id), body)
        with pytest.raises(ApiError) as caught:
            await call(frontends.grpc[1], made.id)
        error = caught.value
        assert (error.message, error.field) == over_http[:2], (method, path, body)
        assert error.reason.lower() == REASONS.get(over_http[2], over_http[2]), (method, path)


REASONS = {"invalid_value": "invalid_field"}
"""Reasons that have another name as OpenAI's code."""


async def answer_of(
    http: httpx.AsyncClient, method: str, path: str, body: Any
) -> tuple[str, str | None, str]:
    answer = await http.request(method, f"/v1{path}", json=body)
    assert answer.status_code >= 400, (method, path, answer.text)
    error = answer.json()["error"]
    return error["message"], error["param"], error["code"]


async def test_texts_come_back_and_lone_surrogates_do_not_go_in(frontends: Frontends) -> None:
    text = "a\0b\u2028c🤖\x7f"
    ours = frontends.grpc[0].conversations
    made = await ours.create([said(text)], {"k\0": text})
    (item,) = (await frontends.grpc[1].conversations.list_items(made.id)).items
    assert item["content"][0]["text"] == text
    assert (await ours.get(made.id)).metadata == {"k\0": text}
    lone = '{"role":"user","content":"\\ud800"}'
    over_http = await frontends.http[0].post(
        "/v1/conversations",
        content=f'{{"items":[{lone}]}}',
        headers={"content-type": "application/json"},
    )
    channel = grpc.aio.insecure_channel(frontends.cluster.frontend.address)
    async with channel:
        stub: Any = ConversationServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CreateConversation(pb.CreateConversationRequest(items=[lone]))
    error: Any = client_error(caught.value, "")
    told = over_http.json()["error"]
    assert (error.reason, told["code"]) == ("MALFORMED_BODY", "malformed_body")
    assert error.message.startswith("items[0] is not JSON: ")
    assert told["message"].startswith("the body is not JSON: ")
    shown = [
        one.partition("JSON: ")[2].partition("(byte")[0] for one in (error.message, told["message"])
    ]
    assert shown[0] == shown[1]


async def test_a_conversation_deleted_meanwhile_has_one_answer(frontends: Frontends) -> None:
    messages = []
    for over_http in (False, True):
        made = await frontends.grpc[0].conversations.create([said("Hello")])
        with paced():
            task: asyncio.Task[Any]
            if over_http:
                path = f"/conversations/{made.id}/messages"
                body = {"content": "x", "model": MODEL, "max_output_tokens": 64}
                task = asyncio.create_task(answer_of(frontends.http[0], "POST", path, body))
            else:
                stream = frontends.grpc[0].conversations.send(
                    made.id, "x", model=MODEL, max_tokens=64
                )
                task = asyncio.create_task(stream.answer())
            await eventually(lambda: begun(frontends))
            await frontends.grpc[1].conversations.delete(made.id)
        if over_http:
            messages.append((await task)[0].replace(made.id, "it"))
        else:
            with pytest.raises(ApiError) as caught:
                await task
            assert caught.value.reason == "NOT_FOUND"
            messages.append(caught.value.message.replace(made.id, "it"))
    assert messages[0] == messages[1]


async def begun(frontends: Frontends) -> bool:
    return (await frontends.cluster.load(frontends.cluster.workers[0])).running > 0
