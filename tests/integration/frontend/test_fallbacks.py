"""What answers a request whose model lets it wait, and what clients and records are told."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from baton.client import AsyncClient, UnavailableError
from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.tenancy.admin.policies import PolicyAdministration
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.policies import ModelPolicy
from baton.tenancy.records.tenants import Tier
from baton.usage.record import UsageRecord
from baton.v1 import inference_pb2
from tests.integration.frontend.test_aliases import OTHER, two_models
from tests.integration.frontend.usage.test_records import records_of
from tests.support.wait import eventually

PRICES = {"org/letters": (1000, 500, 2000), OTHER: (10, 5, 20)}
"""Nano-dollars per token: prompt, cached, output."""
WAIT = {"limits.wait_for_worker_seconds": 0.2}


@pytest.fixture
async def two(empty_stage: Any, tmp_path: Path) -> Any:
    """Two models with a price each, and usage records."""
    await empty_stage.set(
        {
            "usage.spool_path": tmp_path / "spool",
            "usage.jsonl_path": tmp_path / "files",
            "usage.prices": "org/letters=1/0.5/2,other=0.01/0.005/0.02",
            **WAIT,
        }
    )
    await two_models(empty_stage)
    return empty_stage


@pytest.fixture
async def http(two: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=two.http_url) as client:

        async def served() -> bool:
            return (await ask(client, OTHER)).status_code == 200

        await eventually(served)
        yield client


async def ask(http: httpx.AsyncClient, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "prompt": "abc", "max_tokens": 2} | fields
    return await http.post("/v1/completions", json=body)


async def set_policy(two: Any, http: httpx.AsyncClient, **fields: Any) -> None:
    """Set the policy of the stage's model, and wait until the frontend has it."""
    record = ModelPolicy(id=two.model, **({"fallbacks": (OTHER,)} | fields))
    await PolicyAdministration(two.client, two.cluster).set(record, missing=True)

    async def applies() -> bool:
        answer = await ask(http, two.model, baton={"fallback": "allow"})
        return bool(answer.json().get("model") == OTHER)

    keep_waiting(two)
    await eventually(applies)


async def lose_workers(two: Any, http: httpx.AsyncClient) -> None:
    """Let all workers of the stage's model leave."""
    for name in ("p0", "p1", "d0", "d1"):
        await two.members.pop(name).stack.aclose()

    async def gone() -> bool:
        listed = (await http.get("/v1/models")).json()["data"]
        return two.model not in {one["id"] for one in listed}

    await eventually(gone)


def keep_waiting(two: Any) -> None:
    """Let the router's queue be full for the stage's model."""
    place = two.router.place

    def place_other(query: router_pb2.PlaceQuery) -> router_pb2.Placement | BatonError:
        if query.context.model == OTHER:
            found: router_pb2.Placement | BatonError = place(query)
            return found
        return BatonError(Reason.OVERLOADED, "scripted", retry_after=1.0)

    two.router.place = place_other


def cost(record: UsageRecord) -> int:
    """Return the nano-dollars of a record's tokens at the price of its model."""
    prompt, of_cached, output = PRICES[record.model]
    cached = record.cached_tokens or 0
    tokens = (record.prompt_tokens - cached) * prompt + cached * of_cached
    return tokens + (record.output_tokens or 0) * output


@pytest.mark.parametrize("away", [False, True])
async def test_what_answers_is_named_everywhere(
    two: Any, http: httpx.AsyncClient, tmp_path: Path, away: bool
) -> None:
    asked = await ask(http, two.model)
    assert (asked.json()["model"], "baton" in asked.json()) == (two.model, False)
    assert asked.headers["x-baton-model"] == two.model
    await set_policy(two, http)
    if away:
        await lose_workers(two, http)
    expected = [(OTHER, ("length",))] * 4
    whole = await ask(http, two.model, max_tokens=3, user="marked")
    assert whole.status_code == 200, whole.text
    assert whole.json()["model"] == OTHER
    assert whole.json()["baton"] == {"requested_model": two.model}
    assert whole.headers["x-baton-model"] == OTHER
    streamed = await ask(http, two.model, stream=True)
    assert streamed.headers["x-baton-model"] == OTHER
    chunks = [line for line in streamed.text.split("\n") if line.startswith("data: {")]
    assert chunks
    for chunk in chunks:
        assert f'"model":"{OTHER}"' in chunk
        assert f'"baton":{{"requested_model":"{two.model}"}}' in chunk
    async with AsyncClient(two.grpc_address) as client:
        for answer in (
            await client.generate("abc", model=two.model, max_tokens=2).answer(),
            await client.chat("abc", model=two.model, max_tokens=2).answer(),
        ):
            assert (answer.model, answer.requested_model) == (OTHER, two.model)
    await two.quiet()
    records = await records_of(two, tmp_path / "files")
    assert [(one.model, one.finish_reasons) for one in records[-4:]] == expected
    for one in records[-4:]:  # what was tried at the other model has no record between them
        assert one.outcome == "ok"
        assert one.cost_nanodollars == cost(one)


async def test_who_refuses_waits_for_the_model(two: Any, http: httpx.AsyncClient) -> None:
    await set_policy(two, http)
    await lose_workers(two, http)
    refused = await ask(http, two.model, baton={"fallback": "never"})
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "no_worker"
    assert int(refused.headers["retry-after-ms"]) > 0
    assert "x-baton-model" not in refused.headers
    async with AsyncClient(two.grpc_address, retries=0) as client:
        with pytest.raises(UnavailableError, match=r"none appeared within 0\.2 s"):
            await client.generate("abc", model=two.model, max_tokens=2, fallback="never").answer()


async def test_a_policy_may_want_to_be_asked(two: Any, http: httpx.AsyncClient) -> None:
    await set_policy(two, http, fallback="ask")
    assert (await ask(http, two.model)).status_code == 503
    assert (await ask(http, two.model, baton={"fallback": "allow"})).status_code == 200


async def test_classes_that_pay_queue(two: Any, http: httpx.AsyncClient) -> None:
    await set_policy(two, http, queueing=("interactive",))
    assert (await ask(http, two.model)).status_code == 503
    assert (await ask(http, two.model, baton={"fallback": "allow"})).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [97, 98]},
        {"logit_bias": {"97": 1}},
        {"truncate_prompt_tokens": 2},
        {"prompt": ["abc", "abd"]},
    ],
)
async def test_what_means_something_else_to_another_model_stays(
    two: Any, http: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    await set_policy(two, http)
    assert (await ask(http, two.model, **fields)).status_code == 503


async def test_a_model_without_what_is_asked_is_passed_over(
    two: Any, http: httpx.AsyncClient
) -> None:
    admin = PolicyAdministration(two.client, two.cluster)
    await admin.set(ModelPolicy(id=OTHER, context_tokens={"enterprise": 8}))
    await set_policy(two, http)
    assert (await ask(http, two.model, prompt="abcdefgh")).status_code == 503
    assert (await ask(http, two.model, prompt="abc")).status_code == 200
    await admin.set(ModelPolicy(id=OTHER, classes=("premium",)))

    async def refused() -> bool:
        return (await ask(http, OTHER)).status_code == 403

    await eventually(refused)
    assert (await ask(http, two.model)).status_code == 503


async def test_models_are_listed_with_their_state_and_the_limits_of_the_caller(
    two: Any, http: httpx.AsyncClient
) -> None:
    admin = PolicyAdministration(two.client, two.cluster)
    await admin.set(ModelPolicy(id=OTHER, context_tokens={"enterprise": 8}))
    await Administration(two.client, two.cluster).create_tenant("acme", Tier.PRO)
    await admin.set(ModelPolicy(id=two.model, tenants=("acme",)), missing=True)
    expected = {OTHER: ("ready", 8)}

    async def listed() -> bool:
        data = (await http.get("/v1/models")).json()["data"]
        found = {one["id"]: (one["state"], one["request_tokens"]) for one in data}
        return found == expected

    await eventually(listed)
    assert (await ask(http, two.model)).status_code == 403
    assert (await http.get(f"/v1/models/{two.model}")).status_code == 403
    async with AsyncClient(two.grpc_address) as client:
        models = {one.name: (one.state, one.request_tokens) for one in await client.models()}
    assert models == expected
    await admin.remove(two.model)
    expected[two.model] = ("ready", two.context)
    await eventually(listed)
    await two.members["d0"].crash()
    await two.members["d1"].crash()
    expected[two.model] = ("away", two.context)
    await eventually(listed)


@pytest.mark.parametrize("said", ["maybe", 1, {}])
async def test_a_bad_choice_is_refused_by_name(
    two: Any, http: httpx.AsyncClient, said: object
) -> None:
    for baton in ({"fallback": said}, {"fallbak": "allow"}):
        refused = await ask(http, two.model, baton=baton)
        assert refused.status_code == 400
        assert "baton" in refused.json()["error"]["message"]
    request = inference_pb2.GenerateRequest(text="abc")
    request.context.model, request.context.fallback = two.model, 7
    with pytest.raises(grpc.aio.AioRpcError, match="fallback: 7 is not a value of Fallback"):
        async for _ in two.stub().Generate(request):
            pass


async def test_never_between_tokens(two: Any, http: httpx.AsyncClient) -> None:
    await set_policy(two, http)
    others = two.router.place
    two.router.place = lambda query: (
        others(query)
        if query.context.model == OTHER
        else two.place("d1" if query.output_tokens else "d0", None if query.output_tokens else "p0")
    )
    two.worker("d0").script.step_seconds = 0.02
    before = len(two.router.queries)
    async with AsyncClient(two.grpc_address) as client:
        stream = client.generate("abc", model=two.model, max_tokens=20, temperature=0)
        texts = []
        async for text in stream.iter_text():
            texts.append(text)
            if len(texts) == 3:
                await two.members["d0"].crash()
        answer = await stream.answer()
    assert (answer.model, answer.requested_model) == (two.model, "")
    assert len(answer.token_ids) == 20
    queries = two.router.queries[before:]
    assert {one.context.model for one in queries} == {two.model}
    # The wait is bounded only until there is output.
    assert [bool(one.max_wait_seconds) for one in queries] == [True, False]


async def test_a_policy_that_changes_under_load_fails_nothing(
    two: Any, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    admin = PolicyAdministration(two.client, two.cluster)
    asked, on = 0, True

    async def load() -> None:
        nonlocal asked
        while on:
            answer = await ask(http, two.model)
            assert answer.status_code == 200, answer.text
            name = answer.json()["model"]
            assert answer.headers["x-baton-model"] == name
            assert ("baton" in answer.json()) == (name == OTHER)
            asked += 1

    place, number = two.router.place, 0

    def now_and_then(query: router_pb2.PlaceQuery) -> router_pb2.Placement | BatonError:
        nonlocal number
        number += 1
        if query.context.model != OTHER and number % 2 and query.max_wait_seconds:
            return BatonError(Reason.OVERLOADED, "scripted")
        found: router_pb2.Placement | BatonError = place(query)
        return found

    two.router.place = now_and_then
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(load())
        for turn in range(100):
            if turn % 2:
                await admin.remove(two.model)
            else:
                await admin.set(ModelPolicy(id=two.model, fallbacks=(OTHER,)), missing=True)
        on = False
    records = await records_of(two, tmp_path / "files")
    assert len(records) >= asked
    assert {one.model for one in records} == {two.model, OTHER}
    for one in records:
        assert one.outcome == "ok"
        assert one.cost_nanodollars == cost(one)
