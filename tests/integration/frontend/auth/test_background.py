"""Responses in the background: who pays for them, and what becomes of them if their frontend dies
while their budget is spent, their key is revoked, or a provider runs them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton.internal.v1 import cluster_pb2
from baton.postgres.connecting import connected
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.providers import Provider, ProviderModel
from baton.tenancy.records.tenants import Tier
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import DEADLINE_SECONDS
from tests.support.doubles.upstream import Exchange, ScriptedUpstream, delta, finish, usage
from tests.support.processes.process import ServiceProcess, ServiceSpawner
from tests.support.services.settings import environment
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

PROMPT, OUTPUT = len("user:hi\nassistant:"), 150
COST = PROMPT * 1000 + OUTPUT * 5000
"""Of a response, in nano-dollars: its prompt and output at the price of the stage's model."""
SCOPES = ("inference", "state.read", "state.write")


@dataclass
class BackgroundStage:
    """A frontend that stays, and another one, which is a process that ends; one model has scripted
    workers, and the model `gpt` a scripted provider."""

    keys: Keys
    url: str
    upstream: ScriptedUpstream
    stays: httpx.AsyncClient
    ends: httpx.AsyncClient
    process: ServiceProcess

    async def secret(self, **fields: Any) -> tuple[str, str]:
        """Return the id and the secret of a key that both frontends know."""
        found = await self.keys.key("small", scopes=SCOPES, **fields)

        async def known() -> bool:
            answer = await self.ends.get("/v1/models", headers=bearer(found[1]))
            return answer.status_code == 200

        await eventually(known)
        return found

    async def begin(self, at: httpx.AsyncClient, secret: str, model: str = "") -> str:
        """Begin a response in the background, and return its id."""
        body = {"model": model or self.keys.stage.model, "input": "hi", "background": True}
        body |= {"max_output_tokens": OUTPUT}
        answer = await at.post("/v1/responses", json=body, headers=bearer(secret))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def ended(self, ident: str, secret: str) -> dict[str, Any]:
        """Return a response once it has ended."""

        async def found() -> dict[str, Any] | None:
            answer = await self.stays.get(f"/v1/responses/{ident}", headers=bearer(secret))
            body: dict[str, Any] = answer.json()
            return None if body.get("status") in (None, "in_progress", "queued") else body

        return await eventually(found)

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        async with connected(state_settings(self.url)) as connection:
            return [tuple(row) for row in await connection.fetch(query)]

    async def has_output(self, ident: str) -> bool:
        """Return whether output of a response is stored."""
        return bool(await self.rows(f"select 1 from response_events where last > 8 {_of(ident)}"))

    async def die(self) -> None:
        """Kill the frontend that ends, and with it the leases of its responses."""
        self.process.kill()
        await self.process.wait(DEADLINE_SECONDS)
        await self.rows("update background_responses set lease_until = now() returning id")

    def paced(self, seconds: float) -> None:
        """Set how long workers take for a token."""
        for worker in self.keys.stage.workers:
            worker.script.step_seconds = seconds


def _of(ident: str) -> str:
    return f"and response = '{ident.removeprefix('resp_')}'::uuid"


@pytest.fixture
async def background(
    empty_stage: Any, databases: Databases, spawn_service: ServiceSpawner, tmp_path: Path
) -> AsyncIterator[BackgroundStage]:
    stage, url = empty_stage, await databases.migrated()
    await stage.services("router", {}, "router-0")
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        (await stage.add(name, role)).double.script.cached_tokens = 0
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(ScriptedUpstream())
        gpt = ProviderModel(name="gpt", context_tokens=8000, output_tokens=1000, price="1/1/5")
        record = Provider(id="acme", url=upstream.url, http=True, models=(gpt,))
        await ProviderAdministration(stage.client, stage.cluster).set(record)
        settings: dict[str, Any] = {
            "auth.mode": "keys",
            "usage.prices": f"{stage.model}=1/5",
            "usage.spool_path": tmp_path,
            "state.url": url,
            "conversations.enabled": True,
            "conversations.statement_seconds": 20.0,
            "providers.allowed_networks": "127.0.0.0/8",
        }
        await stage.start_frontend(settings)
        process = await spawn_service("frontend", environment(settings), "frontend-ends")
        keys = Keys(stage, Administration(stage.client, stage.cluster))
        await keys.admin.create_tenant("small", Tier.PRO)
        clients = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=base, timeout=DEADLINE_SECONDS)
            )
            for base in (stage.http_url, f"http://{process.instance.http_address}")
        ]
        made = BackgroundStage(keys, url, upstream, clients[0], clients[1], process)
        _, secret = await made.secret()

        async def has_database(client: httpx.AsyncClient) -> bool:
            path = f"/v1/responses/resp_{0:032x}"
            return (await client.get(path, headers=bearer(secret))).status_code == 404

        for client in clients:
            await eventually(partial(has_database, client))
        yield made


async def _budget(background: BackgroundStage, nanodollars: int) -> None:
    admin = background.keys.admin
    await admin.update_tenant("small", budget_nanodollars_per_month=nanodollars)


async def _records(background: BackgroundStage) -> list[tuple[Any, ...]]:
    of = "id, output_tokens, cost_nanodollars, outcome"
    return await background.rows(f"select {of} from usage_records")


async def _count(background: BackgroundStage, count: int) -> bool:
    return len(await _records(background)) == count


async def test_what_its_budget_holds_is_paid_once_also_if_its_frontend_dies(
    background: BackgroundStage,
) -> None:
    _, secret = await background.secret()
    # A frontend that dies leaves charged what it had reserved, and its chunk of the budget.
    await _budget(background, 3 * COST)
    background.paced(0.02)
    ident = await background.begin(background.ends, secret)
    await eventually(partial(background.has_output, ident))
    await background.die()
    response = await background.ended(ident, secret)
    assert response["status"] == "incomplete"
    assert response["error"] is None
    await eventually(partial(_records, background))
    (record,) = await _records(background)
    assert (f"resp_{record[0].hex}", *record[1:]) == (ident, OUTPUT, COST, "ok")


async def test_a_budget_that_others_exhaust_meanwhile(background: BackgroundStage) -> None:
    _, secret = await background.secret()
    await _budget(background, 2 * COST + COST // 2)
    background.paced(0.02)
    first = await background.begin(background.stays, secret)

    ran = [200]

    async def refused() -> bool:
        body = {"model": background.keys.stage.model, "input": "hi", "max_output_tokens": OUTPUT}
        answer = await background.stays.post("/v1/responses", json=body, headers=bearer(secret))
        ran.append(answer.status_code)
        assert ran[-1] == 200 or answer.json()["error"]["code"] == "insufficient_quota"
        return ran[-1] == 429

    await eventually(refused)
    response = await background.ended(first, secret)  # it holds what it may cost
    assert response["error"] is None
    assert response["error"] is None
    # At a frontend that dies: what it held is gone for this month, and no other one goes on.
    await _budget(background, 4 * COST - 1)

    async def begun() -> str:
        try:
            return await background.begin(background.ends, secret)
        except AssertionError:
            return ""

    second = await eventually(begun)
    await eventually(partial(background.has_output, second))
    await background.die()
    response = await background.ended(second, secret)
    assert (response["status"], response["error"]["code"]) == ("failed", "insufficient_quota")
    assert response["output"][0]["content"][0]["text"]
    await eventually(lambda: _count(background, ran.count(200)))
    assert second not in {f"resp_{row[0].hex}" for row in await _records(background)}


async def test_a_key_that_is_revoked_meanwhile(background: BackgroundStage) -> None:
    _, other = await background.secret()
    background.paced(0.02)

    async def begin_and_revoke(at: httpx.AsyncClient) -> str:
        key, secret = await background.secret()
        ident = await background.begin(at, secret)
        await eventually(partial(background.has_output, ident))
        await background.keys.admin.revoke_key(key)
        return ident

    here = await begin_and_revoke(background.stays)  # what runs goes on
    assert (await background.ended(here, other))["usage"]["output_tokens"] == OUTPUT
    there = await begin_and_revoke(background.ends)
    await background.die()
    response = await background.ended(there, other)
    assert (response["status"], response["error"]["code"]) == ("failed", "invalid_api_key")
    assert response["output"][0]["content"][0]["text"]


@pytest.mark.parametrize("output", [True, False])
async def test_a_provider_is_asked_again_only_before_its_first_output(
    background: BackgroundStage, *, output: bool
) -> None:
    _, secret = await background.secret()
    go = asyncio.Event()

    async def answer(exchange: Exchange) -> None:
        words = ["one", " two"]
        await exchange.head()
        await exchange.events(delta(role="assistant"), *map(delta, words * output))
        await go.wait()
        await exchange.events(*map(delta, words * (not output)), delta(" three"), finish())
        await exchange.events(usage(9, 3, 0), "[DONE]")
        await exchange.end()

    background.upstream.answer = answer
    stream = {"model": "gpt", "input": "hi", "background": True, "stream": True}
    seen: list[bytes] = []
    with pytest.raises(httpx.RemoteProtocolError):
        async with background.ends.stream(
            "POST", "/v1/responses", json=stream, headers=bearer(secret)
        ) as live:
            async for line in live.aiter_lines():
                if line.startswith("data: "):
                    seen.append(line.encode())
                    if len(seen) == (6 if output else 2):
                        await background.die()
    go.set()
    (ident,) = await background.rows("select id from background_responses")
    response = await background.ended(f"resp_{ident[0].hex}", secret)
    if output:
        assert (response["status"], response["error"]["code"]) == ("failed", "stream_lost")
        assert response["output"][0]["content"][0]["text"] == "one two"
        assert response["output"][0]["status"] == "incomplete"
    else:
        assert response["status"] == "completed", response["error"]
        assert response["output"][0]["content"][0]["text"] == "one two three"
    assert len(background.upstream.exchanges) == (1 if output else 2)
    again = await background.stays.get(
        f"/v1/responses/{response['id']}?stream=true", headers=bearer(secret)
    )
    events = [line.encode() for line in again.text.split("\n") if line.startswith("data: ")]
    assert events[: len(seen)] == seen
    assert len(events) > len(seen)
    if not output:
        (record,) = await eventually(partial(_records, background))
        assert (f"resp_{record[0].hex}", *record[1:]) == (
            response["id"],
            *(3, 9 * 1000 + 3 * 5000, "ok"),
        )


async def test_a_response_at_a_provider_is_polled(background: BackgroundStage) -> None:
    _, secret = await background.secret()
    response = await background.ended(
        await background.begin(background.ends, secret, "gpt"), secret
    )
    assert response["output"][0]["content"][0]["text"] == "Hello there"
    assert response["baton"]["exact_continuation"] is False
    onward = {"model": "gpt", "input": "So?", "previous_response_id": response["id"]}
    answer = await background.stays.post("/v1/responses", json=onward, headers=bearer(secret))
    assert answer.status_code == 200, answer.text
    said = [message["content"] for message in background.upstream.exchanges[-1].body["messages"]]
    assert said == ["hi", "Hello there", "So?"]
