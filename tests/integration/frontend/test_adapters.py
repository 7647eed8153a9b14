"""Requests for LoRA adapters, from a client to the workers that serve them."""

from typing import Any

import grpc
import httpx
import pytest

from baton.client import AsyncClient, InvalidRequestError, NotFoundError
from baton.errors import Reason
from baton.internal.v1 import cluster_pb2, worker_pb2
from baton.kv.keys import chain_root, pack, prompt_keys
from baton.v1 import inference_pb2
from tests.support.wait import eventually

SQL, CHAT = b"S" * 16, b"C" * 16
PROMPT = "x" * 40


@pytest.fixture
async def adapted(empty_stage: Any) -> Any:
    """The stage with two adapters on every worker."""
    empty_stage.adapters = {"sql": SQL, "org/chat": CHAT}
    await empty_stage.set()
    return empty_stage


def keys(stage: Any, digest: bytes, prompt: list[int], salt: bytes) -> bytes:
    root = chain_root(stage.model, b"W" * 16, b"L" * 16, digest, salt)
    return pack(prompt_keys(root, prompt, 16).full)


async def test_both_surfaces_ask_the_router_and_workers_for_the_adapter(adapted: Any) -> None:
    async with AsyncClient(adapted.grpc_address) as client:
        for options in (
            {"model": adapted.model, "adapter": "sql"},
            {"model": "sql"},
            {"model": "org/chat"},
            {"model": adapted.model},
        ):
            answer = await client.generate(PROMPT, max_tokens=2, **options).answer()
            assert answer.model == adapted.model
            assert answer.adapter == adapted.router.queries[-1].context.adapter
    async with httpx.AsyncClient(base_url=adapted.http_url) as http:
        body = {"model": "sql", "prompt": PROMPT, "max_tokens": 2}
        assert (await http.post("/v1/completions", json=body)).json()["model"] == "sql"
        body = {"model": "sql", "messages": [{"role": "user", "content": PROMPT}]}
        answer = await http.post("/v1/chat/completions", json={**body, "max_tokens": 2})
        assert answer.json()["model"] == "sql"
        counted = (await http.post("/v1/tokenize", json={"model": "sql", "prompt": "ab"})).json()
        assert counted["count"] == 2
    queries = adapted.router.queries
    expected = [("sql", SQL)] * 2 + [("org/chat", CHAT), ("", b"")] + [("sql", SQL)] * 2
    assert [(one.context.adapter, one.adapter_digest) for one in queries] == expected
    assert {one.context.model for one in queries} == {adapted.model}
    for worker in ("p0", "d0"):
        starts = adapted.worker(worker).starts()
        assert [one.context.adapter for one in starts] == [name for name, _ in expected]
        assert {one.context.model for one in starts} == {adapted.model}
    (start, *_) = adapted.worker("p0").starts()
    prompt, salt = list(start.prompt_token_ids), start.cache_salt
    for query, (_, digest) in list(zip(queries, expected, strict=True))[:5]:
        assert query.chains[0].keys == keys(adapted, digest, prompt, salt)
    assert len({one.chains[0].keys for one in queries[:4]}) == 3


async def test_models_list_their_adapters(adapted: Any) -> None:
    async with AsyncClient(adapted.grpc_address) as client:
        assert [one.adapters for one in await client.models()] == [("org/chat", "sql")]
    async with httpx.AsyncClient(base_url=adapted.http_url) as http:
        listed = (await http.get("/v1/models")).json()["data"]
        assert [(one["id"], one["parent"]) for one in listed] == [
            (adapted.model, None),
            ("org/chat", adapted.model),
            ("sql", adapted.model),
        ]
        for one in listed:
            assert (await http.get(f"/v1/models/{one['id']}")).json() == one


async def test_an_adapter_that_is_not_there_is_not_found(adapted: Any) -> None:
    async with AsyncClient(adapted.grpc_address) as client:
        with pytest.raises(NotFoundError, match="its adapters: org/chat, sql") as caught:
            await client.generate("x", model=adapted.model, adapter="sqk").answer()
        assert (caught.value.reason, caught.value.field) == ("MODEL_NOT_FOUND", "adapter")
        with pytest.raises(NotFoundError) as caught:
            await client.generate("x", model="sqk").answer()
        assert caught.value.field == "model"
    async with httpx.AsyncClient(base_url=adapted.http_url) as http:
        answer = await http.post("/v1/completions", json={"model": "sqk", "prompt": "x"})
        told = answer.json()["error"]
        assert (told["code"], told["param"]) == ("model_not_found", "model")
    assert not adapted.router.queries


async def test_an_adapter_of_two_models_needs_its_model(empty_stage: Any) -> None:
    stage = empty_stage
    stage.adapters = {"sql": SQL}
    await stage.set()
    await stage.add("d9", cluster_pb2.ROLE_DECODE, model="other")
    async with AsyncClient(stage.grpc_address) as client:

        async def both_listed() -> bool:
            return [one.adapters for one in await client.models()] == [("sql",), ("sql",)]

        await eventually(both_listed)
        with pytest.raises(InvalidRequestError, match=f"{stage.model}, other") as caught:
            await client.generate("x", model="sql").answer()
        assert caught.value.field == "model"
        answer = await client.generate("x", model=stage.model, adapter="sql", max_tokens=2).answer()
        assert answer.adapter == "sql"


async def test_without_a_router_only_workers_that_have_it_are_used(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set()
    stage.adapters = {"sql": SQL}
    for name in ("d2", "d3"):
        await stage.add(name, cluster_pb2.ROLE_DECODE)
    await stage.members["router"].crash()
    async with AsyncClient(stage.grpc_address) as client:

        async def known() -> bool:
            return [one.adapters for one in await client.models()] == [("sql",)]

        await eventually(known)
        for _ in range(8):
            await client.generate("x", model="sql", max_tokens=2).answer()
    assert len(stage.worker("d2").starts()) + len(stage.worker("d3").starts()) == 8
    assert not any(stage.worker(name).starts() for name in ("p0", "p1", "d0", "d1"))


async def test_a_lost_stream_goes_on_only_where_the_adapter_is_the_same(empty_stage: Any) -> None:
    stage = empty_stage
    stage.adapters = {"sql": SQL}
    await stage.set()
    stage.worker("d0").script.step_seconds = 0.02
    request = inference_pb2.GenerateRequest(text="x")
    request.context.model, request.context.adapter = stage.model, "sql"
    request.sampling.max_tokens = 30
    call = stage.stub().Generate(request)
    text = ""
    async for event in call:
        text += event.delta.text
        if len(text) == 5:
            await stage.members["d0"].crash()
    assert text == stage.said(0, 30)
    assert await call.code() is grpc.StatusCode.OK
    first, second = stage.router.queries
    assert second.output_tokens >= 5
    assert (first.adapter_digest, second.adapter_digest) == (SQL, SQL)
    (moved,) = stage.worker("d1").starts()
    assert isinstance(moved, worker_pb2.Start)
    assert moved.context.adapter == "sql"


async def test_what_is_recorded_names_adapters_that_exist(adapted: Any, capsys: Any) -> None:
    async with httpx.AsyncClient(base_url=adapted.http_url) as http:
        for name in ("sql", "no-such-name"):
            asked = {"model": name, "prompt": "xxx", "max_tokens": 16}
            await http.post("/v1/completions", json=asked)
    counted = {"surface": "http", "operation": "text_completion"}
    served = {**counted, "model": adapted.model, "adapter": "sql", "reason": "ok"}
    refused = {**counted, "model": "", "adapter": "", "reason": Reason.MODEL_NOT_FOUND.name}
    sample = adapted.frontend.sample
    assert sample("baton_frontend_requests_total", **served) == 1
    assert sample("baton_frontend_requests_total", **refused) == 1
    tokens = {"model": adapted.model, "adapter": "sql"}
    assert sample("baton_frontend_prompt_tokens_total", **tokens) == 3
    assert sample("baton_frontend_output_tokens_total", **tokens) == 16
    first, second = (line for line in capsys.readouterr().out.splitlines() if "request.end" in line)
    assert "adapter=sql" in first
    assert "adapter=" not in second
