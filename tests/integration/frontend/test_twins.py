"""An execution id twice: one execution. A request id twice: two of them."""

import asyncio
from typing import Any

import grpc
import httpx
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2
from tests.support.wait import eventually


def generate(stage: Any, execution_id: str, max_tokens: int = 30) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x" * 40)
    request.context.model = stage.model
    request.context.execution_id = execution_id
    request.sampling.max_tokens = max_tokens
    return request


async def text_of(stage: Any, request: inference_pb2.GenerateRequest, **options: Any) -> str:
    call = stage.stub().Generate(request, **options)
    return "".join([event.delta.text async for event in call if event.HasField("delta")])


async def reason_of(stage: Any, request: inference_pb2.GenerateRequest) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await text_of(stage, request)
    return BatonError.from_rpc_error(caught.value).reason


@pytest.fixture
async def slow(stage: Any) -> Any:
    for worker in stage.workers:
        worker.script.step_seconds = 0.01
    return stage


async def test_a_second_call_of_an_id_is_refused_until_the_first_failed(slow: Any) -> None:
    first = asyncio.create_task(text_of(slow, generate(slow, "one")))
    await eventually(lambda: slow.worker("d0").streams)
    assert await reason_of(slow, generate(slow, "one")) is Reason.ALREADY_EXISTS
    assert await first == slow.said(0, 30)
    assert await reason_of(slow, generate(slow, "one")) is Reason.ALREADY_EXISTS
    assert len(slow.router.queries) == 1
    assert slow.router.queries[0].claim.key

    cancelled = asyncio.create_task(text_of(slow, generate(slow, "two")))
    await eventually(lambda: slow.worker("d0").streams)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await slow.quiet()
    assert await text_of(slow, generate(slow, "two")) == slow.said(0, 30)


async def test_a_call_that_resumes_takes_over(slow: Any) -> None:
    for number in range(2):
        name = f"id-{number}"
        first = asyncio.create_task(reason_of(slow, generate(slow, name, 4000)))
        await eventually(lambda: slow.worker("d0").streams)
        again = generate(slow, name)
        if number:
            again.context.attempt = 1
            assert await text_of(slow, again) == slow.said(0, 30)
        else:
            had = [slow.letter_id(letter) for letter in slow.said(0, 4)]
            again.resume.output_ids.extend(had)
            assert await text_of(slow, again) == slow.said(0, 30)[4:]
        assert await first is Reason.ABORTED
        await slow.quiet()


async def test_http_says_409_of_an_execution_whatever_its_content(slow: Any) -> None:
    async with httpx.AsyncClient(base_url=slow.http_url) as http:

        async def post(prompt: str | list[str], execution_id: str) -> httpx.Response:
            body = {"model": slow.model, "prompt": prompt, "max_tokens": 30}
            headers = {"x-baton-execution-id": execution_id}
            return await http.post("/v1/completions", json=body, headers=headers)

        first = asyncio.create_task(post("a", "mine"))
        await eventually(lambda: slow.worker("d0").streams)
        refused = await post("b", "mine")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_exists")
        assert (await first).status_code == 200
        assert (await post("a", "mine")).status_code == 409
        assert (await post("a", "other")).status_code == 200
        assert (await post("a", "")).status_code == 200

        several = await post(["a", "b"], "several")  # each prompt is an execution
        assert several.status_code == 200
        assert (await post(["a", "b"], "several")).status_code == 409

        for strange in ("has spaces", "x" * 129):
            bad = await post("a", strange)
            error = bad.json()["error"]
            assert (bad.status_code, error["param"]) == (400, "x-baton-execution-id")
        assert await reason_of(slow, generate(slow, "has spaces")) is Reason.INVALID_FIELD


async def test_a_request_id_is_a_name_that_many_requests_may_have(slow: Any) -> None:
    async with httpx.AsyncClient(base_url=slow.http_url) as http:

        async def post(**fields: Any) -> tuple[int, str]:
            body = {"model": slow.model, "prompt": "a", "max_tokens": 10, **fields}
            answer = await http.post(
                "/v1/completions", json=body, headers={"x-request-id": "trace"}
            )
            return answer.status_code, answer.headers["x-request-id"]

        assert await asyncio.gather(*(post() for _ in range(4))) == [(200, "trace")] * 4
        for fields in ({}, {}, {"seed": 1}, {"seed": 2}):
            assert await post(**fields) == (200, "trace")
    named = generate(slow, "")
    named.context.request_id = "trace"
    said = slow.said(0, 30)
    both = await asyncio.gather(text_of(slow, named), text_of(slow, named))
    assert [*both, await text_of(slow, named)] == [said] * 3


async def test_a_router_ends_what_another_frontend_took_over(slow: Any) -> None:
    first = asyncio.create_task(reason_of(slow, generate(slow, "one", 4000)))
    await eventually(lambda: slow.worker("d0").streams)
    slow.router.supersede(slow.router.queries[0].claim.execution)
    assert await first is Reason.ABORTED
    await slow.quiet()
