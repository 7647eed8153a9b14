"""Workers whose draws no other one repeats: what clients are told, and what a loss ends."""

import asyncio
import json
from typing import Any

import grpc
import httpx
import pytest

from baton.client import AsyncClient, UnavailableError
from baton.errors import Reason
from baton.internal.v1 import cluster_pb2
from baton.v1 import inference_pb2
from tests.support.wait import eventually

GREEDY = {"temperature": 0, "top_p": 0.5, "seed": 3, "stop": "#"}


@pytest.fixture
async def inexact(empty_stage: Any) -> Any:
    """The stage with workers that have no exact continuation."""
    empty_stage.inexact_continuation = True
    await empty_stage.set()
    return empty_stage


async def test_models_and_answers_say_it(inexact: Any) -> None:
    async with AsyncClient(inexact.grpc_address) as client:
        (model,) = await client.models()
        assert not model.exact_continuation
        for options, exact in (
            (GREEDY, True),
            ({}, False),
            ({**GREEDY, "n": 2}, False),
            ({**GREEDY, "presence_penalty": 1.0}, False),
            ({**GREEDY, "logit_bias": {5: 1.0}}, False),
        ):
            stream = client.generate("x", model=model.name, max_tokens=2, **options)
            assert (await stream.answer()).exact_continuation is exact, options
    async with httpx.AsyncClient(base_url=inexact.http_url) as http:
        (listed,) = (await http.get("/v1/models")).json()["data"]
        assert listed["exact_continuation"] is False
        body = {"model": listed["id"], "prompt": "x", "max_tokens": 2}
        whole = (await http.post("/v1/completions", json=body)).json()
        assert whole["exact_continuation"] is False
        whole = (await http.post("/v1/completions", json={**body, **GREEDY})).json()
        assert "exact_continuation" not in whole
        events = (await http.post("/v1/completions", json={**body, "stream": True})).text
        chunk = json.loads(events.split("\n\n")[0].removeprefix("data: "))
        assert chunk["exact_continuation"] is False


async def test_others_say_that_they_have_it(stage: Any) -> None:
    async with AsyncClient(stage.grpc_address) as client:
        (model,) = await client.models()
        assert model.exact_continuation
        assert (model.engine, model.dtype, model.deterministic) == ("torch", "bfloat16", False)
        assert model.inexact_reason == "it has AMX"
        stream = client.generate("x", model=stage.model, max_tokens=2)
        assert (await stream.answer()).exact_continuation
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        (listed,) = (await http.get("/v1/models")).json()["data"]
        assert listed["exact_continuation"] is True
        assert (listed["engine"], listed["dtype"]) == ("torch", "bfloat16")
        assert listed["features"] == list(model.features)
        assert (listed["deterministic"], listed["inexact_reason"]) == (False, "it has AMX")
        body = {"model": stage.model, "prompt": "x", "max_tokens": 2}
        assert "exact_continuation" not in (await http.post("/v1/completions", json=body)).json()


async def test_a_sampled_stream_that_is_lost_ends_and_a_greedy_one_goes_on(inexact: Any) -> None:
    for name in ("d0", "d1"):
        inexact.worker(name).script.step_seconds = 0.02
    async with AsyncClient(inexact.grpc_address) as client:
        sampled = client.generate("x", model=inexact.model, max_tokens=40, resume=True)
        greedy = client.generate("x", model=inexact.model, max_tokens=40, temperature=0)

        async def read(stream: Any) -> None:
            async for _ in stream:
                pass

        readings = [asyncio.create_task(read(stream)) for stream in (sampled, greedy)]
        await eventually(lambda: min(len(sampled.token_ids), len(greedy.token_ids)) > 4)
        await inexact.members["d0"].crash()
        with pytest.raises(UnavailableError) as caught:
            await readings[0]
        assert caught.value.reason == Reason.STREAM_LOST.name
        assert caught.value.retry_after is not None
        assert len(sampled.token_ids) < 40  # and the rest came from nowhere
        await readings[1]
        assert greedy.text == inexact.said(0, 40)
    assert [start.sampling.temperature for start in inexact.worker("d1").starts()] == [0]
    await inexact.quiet()


async def test_over_http_the_last_event_says_that_it_was_lost(inexact: Any) -> None:
    inexact.worker("d0").script.step_seconds = 0.02
    body = {"model": inexact.model, "prompt": "x", "max_tokens": 40, "stream": True}
    events: list[str] = []
    async with (
        httpx.AsyncClient(base_url=inexact.http_url) as http,
        http.stream("POST", "/v1/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if line:
                events.append(line)
            if len(events) == 4:
                await inexact.members["d0"].crash()
    assert json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "stream_lost"
    assert not inexact.worker("d1").starts()
    await inexact.quiet()


async def test_while_workers_are_replaced_draws_stay_with_their_kind(empty_stage: Any) -> None:
    """Exact workers p0, p1, d0 and d1, and an inexact one that comes later."""
    stage = empty_stage
    await stage.set()
    stage.worker("d0").script.step_seconds = 0.02
    async with AsyncClient(stage.grpc_address) as client:
        stream = client.generate("x", model=stage.model, max_tokens=60)
        while len(stream.token_ids) < 4:  # d0 has begun to draw
            await anext(stream)
        assert stream.started is not None
        assert stream.started.exact_continuation
        stage.inexact_continuation = True
        await stage.add("d2", cluster_pb2.ROLE_DECODE)

        async def known() -> bool:
            return [one.exact_continuation for one in await client.models()] == [False]

        await eventually(known)
        stage.router.place = lambda _: stage.place("d2")
        await stage.members["d0"].crash()
        with pytest.raises(UnavailableError) as caught:
            await stream.answer()
        assert caught.value.reason == Reason.STREAM_LOST.name
    assert not stage.worker("d2").starts()
    await stage.quiet()


async def test_before_the_first_draw_it_is_tried_elsewhere(inexact: Any) -> None:
    inexact.worker("p0").script.first_token.clear()
    request = inference_pb2.GenerateRequest(text="x")
    request.context.model = inexact.model
    request.sampling.max_tokens = 12
    call = inexact.stub().Generate(request)
    reading = asyncio.create_task(_text(call))
    await eventually(lambda: inexact.worker("d0").kinds() == ["prepare"])
    await inexact.members["d0"].crash()
    await eventually(lambda: inexact.worker("d1").kinds() == ["prepare"])
    inexact.worker("p0").script.first_token.set()
    assert await reading == inexact.said(0, 12)
    assert await call.code() is grpc.StatusCode.OK
    await inexact.quiet()


async def test_what_a_client_resumes_goes_on_and_says_it(inexact: Any) -> None:
    request = inference_pb2.GenerateRequest(text="x")
    request.context.model = inexact.model
    request.sampling.max_tokens = 4
    request.resume.output_ids.extend([inexact.letter_id("a"), inexact.letter_id("b")])
    request.resume.seed = 1
    call = inexact.stub().Generate(request)
    first, *events = [event async for event in call]
    assert first.started.HasField("exact_continuation")
    assert not first.started.exact_continuation
    assert "".join(event.delta.text for event in events) == inexact.said(0, 4)[2:]


async def _text(call: Any) -> str:
    return "".join([event.delta.text async for event in call])
