"""Frontends send failed and slow requests, and a sample of the others, to routers."""

from typing import Any

import httpx

from baton.errors import BatonError, Reason
from baton.usage.record import decode
from tests.support.wait import eventually

PROMPT = "a prompt that is long enough"


async def ask(stage: Any, request_id: str, status: int = 200) -> None:
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        answer = await client.post(
            "/v1/completions",
            json={"model": stage.model, "prompt": PROMPT, "max_tokens": 3},
            headers={"x-request-id": request_id},
        )
    assert answer.status_code == status, answer.text


async def test_a_sample_and_every_failure_go_to_the_router_that_decided(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"history.sample_ratio": 1})
    await ask(stage, "usual")
    (usual,) = await eventually(lambda: stage.router.kept)
    record = decode(usual.record)
    assert (usual.kind, usual.error, record.outcome) == ("sampled", "", "ok")
    assert (record.request_id, record.router, record.decode_worker) == ("usual", "router", "d0")
    refusal = BatonError(Reason.OVERLOADED, "the queue is full", retry_after=1.0)
    stage.router.place = lambda _: refusal
    await ask(stage, "refused", 503)
    _, refused = await eventually(lambda: stage.router.kept[1:] and stage.router.kept)
    record = decode(refused.record)
    assert (refused.kind, record.outcome, record.router) == ("failed", "OVERLOADED", "")
    assert "the queue is full" in refused.error


async def test_a_request_beyond_its_target_is_slow(empty_stage: Any) -> None:
    stage = empty_stage
    await stage.set({"history.sample_ratio": 0})
    await ask(stage, "usual")
    place = stage.router.place

    def late(query: Any) -> Any:
        placement = place(query)
        placement.ttft_target_seconds = 1e-6
        return placement

    stage.router.place = late
    await ask(stage, "late")
    kept = await eventually(lambda: stage.router.kept)
    assert [(one.kind, decode(one.record).request_id) for one in kept] == [("slow", "late")]
