"""Rights of keys, budgets and aliases hold for models of providers, too."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from baton.tenancy.admin.aliases import AliasAdministration
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.aliases import AliasTarget
from baton.tenancy.records.providers import Provider, ProviderModel
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.auth.test_budgets import budgeted, spent
from tests.support.clock import DEADLINE_SECONDS
from tests.support.doubles.upstream import Exchange, ScriptedUpstream
from tests.support.wait import eventually

COST = 5 * 1000 + 4 * 500 + 2 * 2000
"""Of an answer by `says`, at the price of `gpt`."""
ASKED = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@dataclass
class KeyedProvider:
    """Keys, and the upstream of the models `gpt`, `free` without a price, and the alias `mine`."""

    keys: Keys
    upstream: ScriptedUpstream
    http: httpx.AsyncClient

    async def ask(self, secret: str, model: str = "gpt") -> httpx.Response:
        body = {**ASKED, "model": model}
        return await self.http.post("/v1/chat/completions", json=body, headers=bearer(secret))


@pytest.fixture
async def provided(empty_stage: Any) -> AsyncIterator[KeyedProvider]:
    stage = empty_stage
    stage.routers = [await stage.services("router", {}, f"router-{number}") for number in (0, 1)]
    async with ScriptedUpstream() as upstream, httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        models = [
            ProviderModel(name=name, context_tokens=8000, output_tokens=1000, price=price)
            for name, price in (("gpt", "1/0.5/2"), ("free", ""))
        ]
        record = Provider(id="acme", url=upstream.url, http=True, models=tuple(models))
        await ProviderAdministration(stage.client, stage.cluster).set(record)
        await AliasAdministration(stage.client, stage.cluster).point(
            "mine", (AliasTarget("gpt"),), missing=True
        )
        await stage.start_frontend(
            {"auth.mode": "keys", "providers.allowed_networks": "127.0.0.0/8"}
        )
        http.base_url = httpx.URL(stage.http_url)
        keys = Keys(stage, Administration(stage.client, stage.cluster))
        await keys.tenant("acme")
        yield KeyedProvider(keys, upstream, http)


async def test_a_key_may_be_used_for_the_models_that_it_names(provided: KeyedProvider) -> None:
    _, by_model = await provided.keys.key(models=("gpt",))
    _, by_alias = await provided.keys.key(models=("mine",))
    _, by_other = await provided.keys.key(models=("free",))
    for secret, model, status in (
        (by_model, "gpt", 200),
        (by_model, "mine", 200),
        (by_model, "free", 403),
        (by_alias, "mine", 200),
        (by_alias, "gpt", 200),
        (by_other, "gpt", 403),
        (by_other, "mine", 403),
    ):
        asked = len(provided.upstream.exchanges)
        answer = await provided.ask(secret, model)
        assert answer.status_code == status, (model, answer.text)
        assert len(provided.upstream.exchanges) - asked == (status == 200)
        if status == 200:
            assert answer.json()["model"] == "gpt"
    for secret, expected in ((by_model, {"gpt", "mine"}), (by_other, {"free"})):
        found = (await provided.http.get("/v1/models", headers=bearer(secret))).json()["data"]
        assert {one["id"] for one in found} == expected


async def test_a_budget_is_reserved_at_the_price_and_charged_by_what_was_counted(
    provided: KeyedProvider,
) -> None:
    secret = await budgeted(provided.keys, 1_000_000)
    assert (await provided.ask(secret)).status_code == 200
    await eventually(lambda: charged(provided, "small", COST))
    # It costs less than this budget, but may cost a token per byte of its body.
    tight = await budgeted(provided.keys, 2 * COST, "tight")
    refused = await provided.ask(tight)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert len(provided.upstream.exchanges) == 1
    assert await spent(provided.keys, "tight") == (0, 0)


async def charged(provided: KeyedProvider, tenant: str, cost: int) -> bool:
    """Return whether so much was spent, and no more is charged."""
    return await spent(provided.keys, tenant) == (cost, cost)


async def test_a_model_without_a_price_is_refused_to_who_has_a_budget(
    provided: KeyedProvider,
) -> None:
    secret = await budgeted(provided.keys, 1_000_000)
    answer = await provided.ask(secret, "free")
    assert (answer.status_code, "price" in answer.text) == (400, True), answer.text
    assert not provided.upstream.exchanges


@pytest.mark.parametrize(
    ("limit", "expected"),
    [({"requests_per_minute": 1}, [200, 429]), ({"tokens_per_minute": 20}, [429, 429])],
)
async def test_limits_of_keys(
    provided: KeyedProvider, limit: dict[str, int], expected: list[int]
) -> None:
    """Of tokens an estimate is reserved, of a request's size, before the upstream is asked."""
    _, secret = await provided.keys.key(**limit)
    answers = [(await provided.ask(secret)).status_code for _ in range(2)]
    assert answers == expected
    assert len(provided.upstream.exchanges) == expected.count(200)


async def test_what_a_paused_provider_cannot_get_uses_no_limits(provided: KeyedProvider) -> None:
    async def pauses(exchange: Exchange) -> None:
        await exchange.refuse(429, retry_after="60")

    provided.upstream.answer = pauses
    _, secret = await provided.keys.key(requests_per_minute=1)
    for _ in range(3):
        refused = await provided.ask(secret)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert len(provided.upstream.exchanges) == 1
