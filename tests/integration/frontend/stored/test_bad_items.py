"""Items that cannot be in a conversation: one answer over HTTP and gRPC, and nothing is stored."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from baton.client import ApiError
from baton.postgres.connecting import connected
from tests.integration.frontend.stored.test_background import LONG
from tests.integration.frontend.stored.test_grpc import answer_of, said
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends

pytestmark = pytest.mark.xdist_group("openai")

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
FORGED: Any = [
    {"type": "reasoning", "summary": [], "encrypted_content": "AQAA"},
    {"type": "compaction", "encrypted_content": "A" * 200},
    {"type": "compaction"},
]


async def refused(call: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


async def head_of(address: str, conversation: str, size: int) -> bytes:
    """Return the head of the answer to items of so many bytes, of which one is sent."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        path = f"/v1/conversations/{conversation}/items"
        fields = f"host: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n"
        writer.write(f"POST {path} HTTP/1.1\r\n{fields}\r\n{{".encode())
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


async def test_items_of_a_turn(frontends: Frontends) -> None:
    http, ours = frontends.http[0], frontends.grpc[1].conversations
    made = await ours.create([said("Call it")])
    await ours.add_items(made.id, [CALL])
    for items, field in (
        ([OUTPUT, OUTPUT], "input[1].call_id"),
        ([OUTPUT | {"call_id": "c2"}], "input[0].call_id"),
        *(([OUTPUT, one], "input[1].encrypted_content") for one in FORGED),
    ):
        body = {"model": MODEL, "conversation": made.id, "input": items}
        told = await answer_of(http, "POST", "/responses", body)
        error = await refused(ours.send(made.id, items=items, model=MODEL).answer())
        assert (error.message, error.field) == told[:2]
        assert error.field == field
    assert len((await ours.list_items(made.id)).items) == 2


async def test_items_that_are_added(frontends: Frontends) -> None:
    http, ours = frontends.http[0], frontends.grpc[1].conversations
    made = await ours.create([said("Hello")])
    for one in FORGED:
        for path, call in (
            (f"/conversations/{made.id}/items", ours.add_items(made.id, [said("x"), one])),
            ("/conversations", ours.create([said("x"), one])),
        ):
            told = await answer_of(http, "POST", path, {"items": [said("x"), one]})
            error = await refused(call)
            assert (error.message, error.field) == told[:2]
            assert error.field == "items[1].encrypted_content"
    # One of 100 MB is refused before it is read, and over gRPC one beyond a message's limit.
    assert b" 413 " in await head_of(http.base_url.netloc.decode(), made.id, 100_000_000)
    error = await refused(ours.add_items(made.id, [said("x" * 5_000_000)]))
    assert error.code is not None
    assert error.code.name == "RESOURCE_EXHAUSTED"
    # As many as a conversation may have.
    most = "update conversations set total_items = 20000 where not hidden returning id"
    async with connected(state_settings(frontends.url)) as connection:
        await connection.fetch(most)
    told = await answer_of(http, "POST", f"/conversations/{made.id}/items", {"items": [said("x")]})
    error = await refused(ours.add_items(made.id, [said("x")]))
    assert (error.message, error.field) == told[:2]
    assert "conversations.max_items" in error.message
    body = {"model": MODEL, "conversation": made.id, "input": "x"}
    told = await answer_of(http, "POST", "/responses", body)
    error = await refused(ours.send(made.id, "x", model=MODEL).answer())
    assert (error.message, error.field) == told[:2]
    assert len((await ours.list_items(made.id)).items) == 1


async def test_what_runs_is_deleted(frontends: Frontends) -> None:
    http, ours = frontends.http[0], frontends.grpc[1].conversations
    with paced():
        begun = await frontends.clients[0].responses.create(input="Hello", **LONG)
        await ours.delete_response(begun.id)
    error = await refused(ours.get_response(begun.id))
    told = await answer_of(http, "GET", f"/responses/{begun.id}", None)
    assert (error.message, error.reason.lower()) == (told[0], told[2])
