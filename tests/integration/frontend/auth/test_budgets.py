"""Budgets: what may not be paid is refused before it runs, and what ran is counted exactly."""

import time
from typing import Any

import grpc
import httpx
import pytest

from baton.cluster import keys as names
from baton.cluster.rendezvous import choose
from baton.errors import BatonError, QuotaViolation, Reason
from baton.internal.v1 import cluster_pb2
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.budget.record import parse
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from baton.tenancy.records.tenants import SpendAlert, Tier
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.auth.test_keys import chat, over_grpc, over_http
from tests.support.clock import within
from tests.support.wait import eventually

PROMPT, OUTPUT = len("user:hi\nassistant:"), 3
INPUT_PRICE, OUTPUT_PRICE = 1000, 5000
COST = PROMPT * INPUT_PRICE + OUTPUT * OUTPUT_PRICE
"""Of what `ask` asks for, in nano-dollars; all of it is computed."""


async def ask(keys: Keys, secret: str, url: str = "", **body: Any) -> httpx.Response:
    asked = {"model": keys.stage.model, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(base_url=url or keys.stage.http_url) as client:
        sent = {**asked, "max_tokens": OUTPUT, **body}
        return await client.post("/v1/chat/completions", json=sent, headers=bearer(secret))


@pytest.fixture
async def priced(empty_stage: Any) -> Keys:
    """The stage's router is real, and so are its etcd's records."""
    stage = empty_stage
    stage.routers = [await stage.services("router", {}, f"router-{number}") for number in (0, 1)]
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        await stage.add(name, role)
    await stage.start_frontend({"auth.mode": "keys", "usage.prices": f"{stage.model}=1/5"})
    return Keys(stage, Administration(stage.client, stage.cluster))


async def spent(keys: Keys, tenant: str) -> tuple[int, int]:
    """Return what the tenant's requests cost this month, and what it was charged."""
    key = names.spent(keys.stage.cluster, month_of(time.time()), Subject.TENANT, tenant)
    value = await keys.stage.client.get(key)
    if value is None:
        return 0, 0
    record = parse(value)
    return record.settled, record.charged


async def budgeted(keys: Keys, nanodollars: int, tenant: str = "small") -> str:
    await keys.admin.create_tenant(tenant, Tier.PRO, budget_nanodollars_per_month=nanodollars)
    return (await keys.key(tenant))[1]


@pytest.mark.xdist_group("openai")
async def test_what_fits_runs_and_what_does_not_is_told_alike_everywhere(priced: Keys) -> None:
    from openai import AsyncOpenAI, RateLimitError  # takes a second

    secret = await budgeted(priced, 2 * COST + COST - 1)
    assert [(await ask(priced, secret)).status_code for _ in range(2)] == [200, 200]
    refused = await ask(priced, secret)
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    month = time.strftime("%Y-%m", time.gmtime())
    sentence = (
        f"tenant 'small' has a budget of 0.000098999 dollars for {month}, and this request may "
        "cost "
        "0.000033 dollars: the rest is too small"
    )
    error = refused.json()["error"]
    assert (error["message"], error["type"], error["code"]) == (
        sentence,
        "insufficient_quota",
        "insufficient_quota",
    )
    said = await over_http(priced.stage, bearer(secret))
    assert said is not None
    assert said.reason is Reason.INSUFFICIENT_QUOTA
    for method in ("Chat", "Session"):
        assert await over_grpc(priced.stage, method, bearer(secret)) == said
    # A shorter one fits into what is left, to the nano-dollar.
    assert (await ask(priced, secret, max_tokens=2)).status_code == 200
    async with within(3):
        await eventually(lambda: _is(spent(priced, "small"), 3 * COST - OUTPUT_PRICE))
    async with AsyncOpenAI(api_key=secret, base_url=f"{priced.stage.http_url}/v1") as client:
        with pytest.raises(RateLimitError) as told:
            await client.chat.completions.create(
                model=priced.stage.model, messages=[{"role": "user", "content": "hi"}]
            )
    assert told.value.code == "insufficient_quota"


async def _is(found: Any, settled: int) -> bool:
    """Return whether so much was spent, and no more is charged."""
    return await found == (settled, settled)


async def test_grpc_names_the_budget_and_whose_it_is(priced: Keys) -> None:
    secret = await budgeted(priced, 5)
    stub = priced.stage.stub()
    call = stub.Chat(chat(priced.stage), metadata=tuple(bearer(secret).items()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = BatonError.from_rpc_error(caught.value)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.quota == QuotaViolation("tenant:small", "budget_nanodollars_per_month", 5)
    assert error.retry_after is None


async def test_an_alert_that_is_crossed_is_told_once(priced: Keys) -> None:
    """Also where nothing limits what is spent."""
    secret = await budgeted(priced, 0)
    (tenant,) = [one for one in await priced.admin.tenants() if one.id == "small"]
    made = [
        await priced.admin.spend.create_alert(
            tenant, SpendAlert(id="", threshold_nanodollars=amount, recipients=("a@b.example",))
        )
        for amount in (COST, 2 * COST, 100 * COST)
    ]
    key = names.spent(priced.stage.cluster, month_of(time.time()), Subject.TENANT, "small")

    async def marked() -> tuple[str, ...]:
        value = await priced.stage.client.get(key)
        return () if value is None else parse(value).alerts

    async def spend(times: int, expected: tuple[str, ...]) -> bool:
        for _ in range(times):
            assert (await ask(priced, secret)).status_code == 200
        return await marked() == expected

    async with within(6):
        await eventually(lambda: spend(1, (made[0].id, made[1].id)))

    def told() -> float:
        name = "baton_router_spend_alerts_total"
        return sum(one.sample(name, subject="tenant") for one in priced.stage.routers)

    assert told() == 2
    assert await spend(2, (made[0].id, made[1].id))
    assert told() == 2


async def test_a_model_without_a_price_is_refused_where_spending_is_limited(keys: Keys) -> None:
    secret = await budgeted(keys, 10**9)
    stage = keys.stage
    for name, role in (("p0", cluster_pb2.ROLE_PREFILL), ("d0", cluster_pb2.ROLE_DECODE)):
        await stage.add(name, role)
    refused = await ask(keys, secret)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "failed_precondition")
    assert "has no price" in refused.json()["error"]["message"]
    assert (await ask(keys, (await keys.key("acme"))[1])).status_code == 200


async def test_all_of_it_is_had_by_whoever_asks_and_survives_its_owner(priced: Keys) -> None:
    stage = priced.stage
    second = await stage.services(
        "frontend", {"auth.mode": "keys", "usage.prices": f"{stage.model}=1/5"}, "frontend-2"
    )
    urls = [stage.http_url, f"http://{second.instance.http_address}"]
    secret = await budgeted(priced, 20 * COST)

    async def known() -> bool:
        async with httpx.AsyncClient(base_url=urls[1]) as client:
            found = await client.get("/v1/models", headers=bearer(secret))
            return found.status_code == 200

    await eventually(known)
    for one in range(12):  # the workers of the stage serve one frontend at a time
        assert (await ask(priced, secret, urls[one % 2])).status_code == 200
    limit_id = LimitId(Subject.TENANT, "small", Measure.COST, month_of(time.time()))
    by_incarnation = {one.instance.incarnation: one for one in stage.routers}
    await by_incarnation[choose(limit_id.digest(), by_incarnation)].stop(drain=False)
    answers = 12 * [200]

    async def used_up() -> bool:
        answer = await ask(priced, secret, urls[len(answers) % 2])
        answers.append(answer.status_code)
        return answer.headers.get("x-should-retry") == "false"

    async with within(10):
        await eventually(used_up)
    assert answers.count(200) == 20
    assert set(answers) == {200, 429}
    async with within(3):
        await eventually(lambda: _is(spent(priced, "small"), 20 * COST))
