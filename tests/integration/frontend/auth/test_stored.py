"""What is stored is for keys of its project with scopes, and within its tenant's limits."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from baton.client import ApiError, AsyncClient
from baton.tenancy.admin.tenants import Administration
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import DEADLINE_SECONDS
from tests.support.services.cluster import patient_client
from tests.support.state.databases import Databases
from tests.support.wait import eventually

BOTH = ("inference", "state.read", "state.write")
ITEM: Any = {"type": "message", "role": "user", "content": "hi"}
UNKNOWN = "conv_" + "0" * 32
Told = tuple[str, str]
"""The sentence of an error, and its reason."""


@dataclass
class Caller:
    """One key's clients."""

    http: httpx.AsyncClient
    grpc: AsyncClient

    async def over_http(self, method: str, path: str, body: Any = None) -> Told:
        answer = await self.http.request(method, f"/v1{path}", json=body)
        assert answer.status_code >= 400, answer.text
        error = answer.json()["error"]
        return error["message"], error["code"]

    async def over_grpc(self, call: Awaitable[Any]) -> Told:
        with pytest.raises(ApiError) as caught:
            await call
        return caught.value.message, caught.value.reason.lower()


@dataclass
class Callers:
    """Makes keys of a frontend that stores, and their clients."""

    keys: Keys
    stack: AsyncExitStack

    async def of(self, tenant: str, scopes: tuple[str, ...] = BOTH) -> Caller:
        _, secret = await self.keys.key(tenant, scopes=scopes)
        stage = self.keys.stage
        http = httpx.AsyncClient(
            base_url=stage.http_url, headers=bearer(secret), timeout=DEADLINE_SECONDS
        )
        grpc = patient_client(stage.grpc_address, api_key=secret, retries=0)
        return Caller(
            await self.stack.enter_async_context(http), await self.stack.enter_async_context(grpc)
        )


@pytest.fixture
async def callers(empty_stage: Any, databases: Databases) -> AsyncIterator[Callers]:
    url = await databases.migrated()
    await empty_stage.set(
        {
            "auth.mode": "keys",
            "state.url": SecretStr(url),
            "conversations.enabled": True,
            "conversations.statement_seconds": 20.0,
        }
    )
    keys = Keys(empty_stage, Administration(empty_stage.client, empty_stage.cluster))
    for tenant in ("acme", "other"):
        await keys.tenant(tenant)
    async with AsyncExitStack() as stack:
        found = Callers(keys, stack)
        first = await found.of("acme")

        async def has_database() -> bool:
            return (await first.http.get(f"/v1/conversations/{UNKNOWN}")).status_code == 404

        await eventually(has_database)
        yield found


Pair = tuple[str, str, Any, Callable[[Any, str, str], Awaitable[Any]]]
READS: tuple[Pair, ...] = (
    ("GET", "/conversations/{conv}", None, lambda c, conv, _: c.get(conv)),
    ("GET", "/conversations/{conv}/items", None, lambda c, conv, _: c.list_items(conv)),
    (
        "GET",
        "/conversations/{conv}/items/{item}",
        None,
        lambda c, conv, item: c.get_item(conv, item),
    ),
    ("GET", "/responses/{resp}", None, lambda c, conv, _: c.get_response(response_of(conv))),
)
WRITES: tuple[Pair, ...] = (
    ("POST", "/conversations/{conv}", {"metadata": {}}, lambda c, conv, _: c.update(conv, {})),
    (
        "POST",
        "/conversations/{conv}/items",
        {"items": [ITEM]},
        lambda c, conv, _: c.add_items(conv, [ITEM]),
    ),
    (
        "DELETE",
        "/conversations/{conv}/items/{item}",
        None,
        lambda c, conv, item: c.delete_item(conv, item),
    ),
    ("DELETE", "/conversations/{conv}", None, lambda c, conv, _: c.delete(conv)),
    (
        "POST",
        "/responses/{resp}/cancel",
        {},
        lambda c, conv, _: c.cancel_response(response_of(conv)),
    ),
    ("DELETE", "/responses/{resp}", None, lambda c, conv, _: c.delete_response(response_of(conv))),
)
MESSAGES: tuple[Pair, ...] = (
    (
        "POST",
        "/conversations/{conv}/messages",
        {"model": "m", "content": "hi"},
        lambda c, conv, _: c.send(conv, "hi", model="m").answer(),
    ),
)


def response_of(conversation: str) -> str:
    return conversation.replace("conv", "resp")


async def told(caller: Caller, pair: Pair, conversation: str, item: str) -> tuple[Told, Told]:
    """Return what a request is told over HTTP and over gRPC."""
    method, path, body, call = pair
    names = {"conv": conversation, "item": item, "resp": response_of(conversation)}
    over_http = await caller.over_http(method, path.format(**names), body)
    return over_http, await caller.over_grpc(call(caller.grpc.conversations, conversation, item))


async def test_what_is_of_others_is_as_if_it_had_never_been(callers: Callers) -> None:
    owner, stranger = await callers.of("acme"), await callers.of("other")
    made = await owner.grpc.conversations.create([ITEM])
    (item,) = (await owner.grpc.conversations.list_items(made.id)).items
    nothing = "msg_" + "0" * 32
    for pair in (*READS, *WRITES, *MESSAGES):
        of_theirs = await told(stranger, pair, made.id, item["id"])
        of_unknown = await told(stranger, pair, UNKNOWN, nothing)
        assert of_theirs[0] == of_theirs[1], pair
        assert of_unknown[0] == of_unknown[1], pair
        digits = made.id.partition("_")[2]
        message, reason = of_theirs[0]
        assert (message.replace(digits, "0" * 32), reason) == of_unknown[0], pair
        assert reason == "not_found"
    assert (await owner.grpc.conversations.list_items(made.id)).items == (item,)


async def test_each_call_needs_its_scope(callers: Callers) -> None:
    owner = await callers.of("acme")
    reader = await callers.of("acme", ("inference", "state.read"))
    writer = await callers.of("acme", ("inference", "state.write"))
    made = await owner.grpc.conversations.create([ITEM])
    (item,) = (await owner.grpc.conversations.list_items(made.id)).items
    for caller, pairs in (
        (writer, READS),
        (reader, WRITES),
        (writer, MESSAGES),
        (reader, MESSAGES),
    ):
        for pair in pairs:
            over_http, over_grpc = await told(caller, pair, made.id, item["id"])
            assert over_http == over_grpc, pair
            assert over_http[1] == "permission_denied"
    creation = reader.grpc.conversations.create()
    expected = await reader.over_http("POST", "/conversations", {})
    assert await reader.over_grpc(creation) == expected


async def test_a_tenant_stores_within_its_limits(callers: Callers) -> None:
    caller, free = await callers.of("acme"), await callers.of("other")
    ours = caller.grpc.conversations
    first = await ours.create([ITEM])
    await callers.keys.admin.update_tenant("acme", stored_conversations=2)
    limited = partial(caller.http.post, "/v1/conversations", json={})

    async def is_limited() -> Any:
        answer = await limited()
        return answer if answer.status_code == 429 else None

    refused: Any = await eventually(is_limited)
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    error = refused.json()["error"]
    assert error["code"] == error["type"] == "insufficient_quota"
    assert error["message"] == (
        "tenant 'acme': the limit of 2 stored conversations is reached; delete some, or ask the "
        "operator for more (stored_conversations)"
    )
    assert await caller.over_grpc(ours.create()) == (error["message"], error["code"])
    await free.grpc.conversations.create()

    await ours.delete(first.id)
    await eventually(is_limited)  # there is room for one
    await callers.keys.admin.update_tenant("acme", stored_conversations=0, stored_bytes=10)
    made: Any = await eventually(partial(_created, ours))
    await ours.add_items(made.id, [ITEM])
    for method, path, body, call in (*WRITES[1:2], *MESSAGES):
        names = {"conv": made.id, "item": ""}
        over_http = await caller.over_http(method, path.format(**names), body)
        assert over_http[1] == "insufficient_quota"
        assert "the limit of 10" in over_http[0]
        assert await caller.over_grpc(call(ours, made.id, "")) == over_http
    stored = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "store": True}
    assert (await caller.over_http("POST", "/chat/completions", stored))[1] == "insufficient_quota"
    await ours.get(made.id)
    await ours.delete(made.id)
    await ours.create([ITEM])


async def _created(ours: Any) -> Any:
    try:
        return await ours.create()
    except ApiError:
        return None
