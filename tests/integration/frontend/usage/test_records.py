"""Each request that runs has one usage record, which says what its client was told."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from baton.usage.record import UsageRecord
from baton.usage.report.files import RecordFiles, files_of
from baton.v1 import common_pb2, inference_pb2
from tests.support.wait import eventually

LONG = "a prompt that is longer than what the workers say that they found of it"


@pytest.fixture
def usage(tmp_path: Path) -> dict[str, Any]:
    return {
        "usage.spool_path": tmp_path / "spool",
        "usage.jsonl_path": tmp_path / "files",
        "usage.prices": "org/letters=1/0.5/2,org/letters+batch=0.1/0.1/0.1",
    }


async def records_of(stage: Any, path: Path) -> list[UsageRecord]:
    """Stop the frontend, so that all is delivered; return the records in the order of begins."""
    assert await stage.frontend.stop() == 0
    found = RecordFiles(files_of(path))
    records = sorted(found, key=lambda record: record.id)
    assert (found.doubles, found.damaged) == (0, 0)
    return records


def body(stage: Any, **fields: Any) -> dict[str, Any]:
    return {"model": stage.model, "max_tokens": 3, **fields}


def request(stage: Any, **context: Any) -> inference_pb2.GenerateRequest:
    made = inference_pb2.GenerateRequest(text=LONG)
    made.context.model = stage.model
    for name, value in context.items():
        setattr(made.context, name, value)
    made.sampling.max_tokens = 4
    return made


async def test_answers_and_records_say_the_same(
    empty_stage: Any, usage: dict[str, Any], tmp_path: Path
) -> None:
    stage = empty_stage
    await stage.set(usage)
    told: list[tuple[int, int, int]] = []

    def count(answer: dict[str, Any]) -> None:
        cached = answer["prompt_tokens_details"]["cached_tokens"]
        told.append((answer["prompt_tokens"], cached, answer["completion_tokens"]))

    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for fields in ({}, {"n": 2}, {"stop": "c"}):
            answer = await client.post("/v1/completions", json=body(stage, prompt=LONG, **fields))
            count(answer.json()["usage"])
        async with client.stream(
            "POST",
            "/v1/chat/completions",
            json=body(
                stage,
                messages=[{"role": "user", "content": LONG}],
                stream=True,
                stream_options={"include_usage": True},
            ),
        ) as streamed:
            lines = [line async for line in streamed.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    count(httpx.Response(200, text=lines[-2].removeprefix("data: ")).json()["usage"])
    batch = common_pb2.PRIORITY_CLASS_BATCH
    async for event in stage.stub().Generate(request(stage, priority=batch, request_id="mine")):
        if event.HasField("finished"):
            one = event.finished.usage
            told.append((one.prompt_tokens, one.cached_tokens, one.output_tokens))
    records = await records_of(stage, tmp_path / "files")
    assert [(r.prompt_tokens, r.cached_tokens, r.output_tokens) for r in records] == told
    assert [r.finish_reasons for r in records] == [
        ("length",),
        ("length", "length"),
        ("stop",),
        ("length",),
        ("length",),
    ]
    assert {r.outcome for r in records} == {"ok"}
    assert [r.operation for r in records] == [
        *["text_completion"] * 3,
        "chat",
        "text_completion",
    ]
    for r, (prompt, cached, output) in zip(records[:4], told, strict=False):
        assert r.cost_nanodollars == (prompt - cached) * 1000 + cached * 500 + output * 2000
    last = records[-1]
    assert last.cost_nanodollars == 100 * (last.prompt_tokens + (last.output_tokens or 0))
    assert (last.request_id, last.batch, last.tenant) == ("mine", True, "default")
    assert (last.model, last.weights) == (stage.model, (b"W" * 16).hex())
    assert last.frontend == "frontend"
    for r in records:
        assert r.seconds is not None
        assert r.first_token_seconds is not None
        assert 0 < r.first_token_seconds <= r.seconds
        assert r.decode_worker in ("d0", "d1")
        assert r.decode_seconds is not None
        assert r.first_token_seconds + r.decode_seconds <= r.seconds + 1e-3
    assert {r.priority_class for r in records[:-1]} == {"interactive"}
    assert last.priority_class == "batch"


async def test_requests_that_can_wait_have_the_price_of_batches(
    empty_stage: Any, usage: dict[str, Any], tmp_path: Path
) -> None:
    stage = empty_stage
    await stage.set(usage)
    asked = body(stage, messages=[{"role": "user", "content": LONG}])
    respond: dict[str, Any] = {"model": stage.model, "input": LONG, "max_output_tokens": 3}
    told: list[str | None] = []
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for tier in ("flex", "priority", None):
            fields = {} if tier is None else {"service_tier": tier}
            chat = (await client.post("/v1/chat/completions", json=asked | fields)).json()
            lines = (
                await client.post("/v1/chat/completions", json=asked | fields | {"stream": True})
            ).text.splitlines()
            chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2] if line]
            response = (await client.post("/v1/responses", json=respond | fields)).json()
            seen = {one.get("service_tier") for one in (chat, *chunks, response)}
            assert len(seen) == 1, seen
            told += seen
        for path, one in (("/v1/chat/completions", asked), ("/v1/responses", respond)):
            wrong = await client.post(path, json=one | {"service_tier": "flexible"})
            assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "service_tier")
        soon = respond | {"background_options": {"completion_window": "2h"}}
        wrong = await client.post("/v1/responses", json=soon)
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "background_options.completion_window"
    assert told == ["flex", "default", None]
    records = await records_of(stage, tmp_path / "files")
    assert [r.batch for r in records] == [True] * 3 + [False] * 6
    for r in records:
        tokens = r.prompt_tokens, r.cached_tokens or 0, r.output_tokens or 0
        full = (tokens[0] - tokens[1]) * 1000 + tokens[1] * 500 + tokens[2] * 2000
        assert r.cost_nanodollars == (100 * (tokens[0] + tokens[2]) if r.batch else full)
        assert r.priority_class == ("batch" if r.batch else "interactive")


async def test_requests_that_end_before_their_end_have_records_too(
    empty_stage: Any, usage: dict[str, Any], tmp_path: Path
) -> None:
    stage = empty_stage
    await stage.set(usage)
    slow = stage.worker("d0").script
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        refused = await client.post("/v1/completions", json=body(stage, prompt=LONG, n=1000))
        assert refused.status_code == 400
        two = body(stage, prompt=[LONG, LONG], n=2)
        assert (await client.post("/v1/completions", json=two)).status_code == 200
        long = body(stage, prompt=LONG, max_tokens=10_000, stream=True)
        async with client.stream("POST", "/v1/completions", json=long) as answer:
            lines = answer.aiter_lines()
            for _ in range(5):
                await anext(lines)
        slow.step_seconds = 60
        with suppress(grpc.aio.AioRpcError):
            async for _ in stage.stub().Generate(request(stage), timeout=1):
                """Its first token comes, and no other one."""
        await stage.quiet()
    records = await records_of(stage, tmp_path / "files")
    assert [r.outcome for r in records[:3]] == ["ok", "ok", "CANCELLED"]
    assert records[3].outcome in ("DEADLINE", "CANCELLED")  # its client counts the time too
    first, second = records[:2]
    assert first.request_id.removesuffix("-0") == second.request_id.removesuffix("-1")
    assert [r.output_tokens for r in records[:2]] == [6, 6]
    left, late = records[2:]
    assert 3 < (left.output_tokens or 0) < 10_000
    assert left.finish_reasons == ("",)
    assert late.output_tokens == 1
    cached = late.cached_tokens or 0
    assert late.cost_nanodollars == late.prompt_tokens * 1000 - cached * 500 + 2000


async def test_without_room_only_those_with_a_budget_are_refused(
    empty_stage: Any, usage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = empty_stage
    monkeypatch.setattr("baton.spool.spool.REQUEST_BYTES", 1024 * 1024)
    budgets: list[str] = []
    monkeypatch.setattr("services.frontend.app.no_budget", lambda _: bool(budgets))
    await stage.set({**usage, "usage.spool_bytes": 1024 * 1024})
    release = stage.worker("p0").script.first_token
    release.clear()
    async with httpx.AsyncClient(base_url=stage.http_url) as client:

        def ask() -> "asyncio.Task[httpx.Response]":
            made = client.post("/v1/completions", json=body(stage, prompt=LONG))
            return asyncio.create_task(made)

        first = ask()
        await eventually(lambda: stage.worker("p0").streams)
        second = ask()  # there is no room for it
        await eventually(lambda: len(stage.worker("p0").streams) == 2)
        budgets.append("everybody's")
        third = await ask()
        release.set()
        assert [(await one).status_code for one in (first, second)] == [200, 200]
    assert third.status_code == 503
    assert third.headers["retry-after"] == "5"
    assert "usage record" in third.json()["error"]["message"]
    assert len(await records_of(stage, tmp_path / "files")) == 1


async def test_requests_of_a_session_have_records_of_their_own(
    empty_stage: Any, usage: dict[str, Any], tmp_path: Path
) -> None:
    stage = empty_stage
    await stage.set(usage)
    call = stage.stub().Session(timeout=20)
    await call.read()
    starts = [inference_pb2.SessionStart(id=i, generate=request(stage)) for i in (1, 2, 3)]
    await call.write(inference_pb2.SessionRequest(starts=starts))
    await call.done_writing()
    told = {}
    while (said := await call.read()) is not grpc.aio.EOF:
        for event in said.events:
            if event.HasField("finished"):
                told[event.id] = event.finished.usage.output_tokens
    records = await records_of(stage, tmp_path / "files")
    assert told == {1: 4, 2: 4, 3: 4}
    assert [(r.output_tokens, r.outcome) for r in records] == [(4, "ok")] * 3
