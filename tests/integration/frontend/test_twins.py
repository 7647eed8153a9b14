"""The same request id twice: one execution."""

import asyncio
from typing import Any

import grpc
import httpx
import pytest

from baton.errors import BatonError, Reason
from baton.v1 import inference_pb2
from tests.support.wait import eventually


def generate(stage: Any, request_id: str, max_tokens: int = 30) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x" * 40)
    request.context.model = stage.model
    request.context.request_id = request_id
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


async def test_http_says_409_and_only_of_the_same_content(slow: Any) -> None:
    async with httpx.AsyncClient(base_url=slow.http_url, timeout=30) as http:

        async def post(prompt: str, **headers: str) -> int:
            body = {"model": slow.model, "prompt": prompt, "max_tokens": 30}
            answer = await http.post("/v1/completions", json=body, headers=headers)
            if answer.status_code == 409:
                assert answer.json()["error"]["code"] == "already_exists"
            return answer.status_code

        mine = {"x-request-id": "correlation"}
        assert (
            await asyncio.gather(post("a", **mine), post("b", **mine), post("c", **mine))
            == [200] * 3
        )
        assert await post("a", **mine) == 409
        assert await post("a") == 200
        assert await post("a") == 200


async def test_a_router_ends_what_another_frontend_took_over(slow: Any) -> None:
    first = asyncio.create_task(reason_of(slow, generate(slow, "one", 4000)))
    await eventually(lambda: slow.worker("d0").streams)
    slow.router.supersede(slow.router.queries[0].claim.execution)
    assert await first is Reason.ABORTED
    await slow.quiet()
