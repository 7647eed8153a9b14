"""No worker for a moment: requests and streams wait for one, and nobody sees an error."""

import asyncio
from typing import Any

import httpx
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.v1 import inference_pb2
from tests.support.wait import eventually

DECODE = cluster_pb2.ROLE_DECODE


@pytest.fixture
async def stage(empty_stage: Any) -> Any:
    """A stage whose router places on the first decode worker that it was not told to avoid."""
    await empty_stage.set({"limits.wait_for_worker_seconds": 20, "limits.max_waiting": 12})

    def place(query: router_pb2.PlaceQuery) -> router_pb2.Placement | BatonError:
        for name in sorted(empty_stage.members):
            if name.startswith("d") and name not in query.excluded_instances:
                return empty_stage.place(name)
        return BatonError(Reason.NO_WORKER, "no decode worker", retry_after=1.0)

    empty_stage.router.place = place
    for worker in empty_stage.workers:
        worker.script.step_seconds = 0.01
    return empty_stage


def waiting(stage: Any) -> int:
    return int(stage.frontend.sample("baton_frontend_requests_waiting"))


def generate(stage: Any, max_tokens: int = 40, n: int = 1) -> inference_pb2.GenerateRequest:
    request = inference_pb2.GenerateRequest(text="x" * 40, n=n)
    request.context.model = stage.model
    request.sampling.max_tokens = max_tokens
    return request


async def text_of(stage: Any, n: int = 1) -> list[str]:
    texts = [""] * n
    async for event in stage.stub().Generate(generate(stage, n=n)):
        if event.HasField("delta"):
            texts[event.delta.choice] += event.delta.text
    return texts


async def lose_all(stage: Any) -> None:
    await asyncio.gather(*(stage.members[name].crash() for name in ("d0", "d1")))


async def test_streams_and_requests_wait_until_a_worker_is_back(stage: Any) -> None:
    running = [asyncio.create_task(text_of(stage, n=2)) for _ in range(4)]
    await eventually(lambda: len(stage.worker("d0").streams) == 8)
    await lose_all(stage)
    await eventually(lambda: waiting(stage) == 4)
    later = [asyncio.create_task(text_of(stage, n=2)) for _ in range(4)]
    await eventually(lambda: waiting(stage) == 8)
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        assert (await http.get("/health/ready")).status_code == 200
    # The router knows nothing of it yet: the frontend places on what it sees itself.
    stage.router.place = lambda _: BatonError(Reason.NO_WORKER, "no decode worker")
    await stage.add("d2", DECODE)
    for texts in await asyncio.gather(*running, *later):
        assert texts == [stage.said(0, 40), stage.said(1, 40)]
    assert waiting(stage) == 0
    woken = "baton_frontend_worker_wait_seconds_count"
    assert stage.frontend.sample(woken, outcome="woken") >= 8
    assert stage.frontend.sample("baton_frontend_random_placements_total") >= 8
    await stage.quiet()


async def test_a_worker_that_drains_is_left_before_etcd_says_so(stage: Any) -> None:
    """A router that knows of it, too, leaves the frontend to place on what it sees itself."""
    stage.router.place = lambda _: BatonError(Reason.NO_WORKER, "no decode worker")
    for name in ("d0", "d1"):
        stage.worker(name).script.draining = True
    running = asyncio.create_task(text_of(stage))
    await eventually(lambda: waiting(stage) == 1)
    assert [len(stage.worker(name).starts()) for name in ("d0", "d1")] == [1, 1]
    later = asyncio.create_task(text_of(stage))
    await eventually(lambda: waiting(stage) == 2)
    assert [len(stage.worker(name).starts()) for name in ("d0", "d1")] == [1, 1]
    await stage.add("d2", DECODE)
    assert await asyncio.gather(running, later) == [[stage.said(0, 40)]] * 2
    assert stage.frontend.sample("baton_frontend_placement_retries_total") == 0
    await stage.quiet()


async def test_a_worker_that_is_reached_again_is_used_again(stage: Any) -> None:
    running = asyncio.create_task(text_of(stage))
    await eventually(lambda: stage.worker("d0").streams)
    proxies = [stage.members[name].proxy for name in ("d0", "d1")]
    await asyncio.gather(*(proxy.cut() for proxy in proxies))
    await eventually(lambda: waiting(stage) == 1)
    await proxies[1].mend()
    assert await running == [stage.said(0, 40)]
    await stage.quiet()


async def test_what_waits_is_bounded_and_clients_that_leave_make_room(stage: Any) -> None:
    await lose_all(stage)
    calls = [stage.stub().Generate(generate(stage)) for _ in range(12)]
    reading = [asyncio.create_task(call.read()) for call in calls]
    await eventually(lambda: waiting(stage) == 12)
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        body = {"model": stage.model, "prompt": "x"}
        refused = await http.post("/v1/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        error = refused.json()["error"]
        assert error["code"] == "no_worker"
        assert "12 requests already wait for a worker (limits.max_waiting)" in error["message"]
        calls.pop().cancel()
        await eventually(lambda: waiting(stage) == 11)
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/completions", json=body, timeout=0.3)
        await eventually(lambda: waiting(stage) == 11)
    for call in calls:
        call.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await eventually(lambda: waiting(stage) == 0)
    await stage.quiet()


async def test_a_deadline_that_passes_in_the_wait(stage: Any) -> None:
    await lose_all(stage)
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        assert (await http.get("/v1/models")).json()["data"]
    with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):
        async for _ in stage.stub().Generate(generate(stage), timeout=0.3):
            pass
    await eventually(lambda: waiting(stage) == 0)
