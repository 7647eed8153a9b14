"""Cancelling gives everything back, and costs nobody else a token."""

import asyncio

import httpx
import pytest

from baton.client import DeadlineError, Delta
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.baseline import held
from tests.support.wait import eventually

REQUESTS = 200
CROWD = {
    "engine.max_running": 256,
    "engine.max_waiting": 512,
    "engine.sim_decode_step_seconds": 0.03,
}


async def test_one_of_200_is_cancelled_and_the_others_lose_no_token(local_cluster):
    cluster = await local_cluster(settings=CROWD)
    options = {"model": MODEL, "max_tokens": 30, "ignore_eos": True, "seed": 5}

    async def whole(i: int) -> tuple[int, ...]:
        return (await cluster.client.generate(prompt_of(40, i), **options).answer()).token_ids

    alone = [await whole(i) for i in (0, 57, 199)]
    await cluster.at_baseline()

    async def cut(i: int) -> int:
        async with cluster.client.generate(prompt_of(40, i), **options) as stream:
            async for event in stream:
                if isinstance(event, Delta) and len(stream.token_ids) >= 5:
                    break
            return len(stream.token_ids)

    outputs = await asyncio.gather(*(cut(i) if i == 100 else whole(i) for i in range(REQUESTS)))
    assert outputs[100] < 30
    assert [len(out) for i, out in enumerate(outputs) if i != 100] == [30] * (REQUESTS - 1)
    assert [outputs[i] for i in (0, 57, 199)] == alone
    await cluster.at_baseline()


@pytest.mark.serial
@pytest.mark.parametrize("tokens_before", [0, 1, 5])
async def test_a_client_that_leaves_holds_nothing_after_a_second(local_cluster, tokens_before):
    slow = {
        "engine.sim_decode_step_seconds": 0.1,
        "engine.sim_prefill_tokens_per_second": 1000,
    }
    cluster = await local_cluster(settings=slow)
    body = {
        "model": MODEL,
        "prompt": prompt_of(600, seed=tokens_before),
        "max_tokens": 200,
        "ignore_eos": True,
        "stream": True,
        "n": 2,
    }
    async with (
        httpx.AsyncClient(base_url=cluster.http) as http,
        http.stream("POST", "/v1/completions", json=body, timeout=30) as response,
    ):
        assert response.status_code == 200
        lines = response.aiter_lines()
        for _ in range(2 * tokens_before):  # an event and an empty line
            await anext(lines)

        async def at_work() -> bool:
            return any((await held(cluster)).values())

        await eventually(at_work)
    await cluster.at_baseline(1.0)

    with pytest.raises(DeadlineError):
        await cluster.client.generate(
            prompt_of(300), model=MODEL, max_tokens=200, ignore_eos=True, timeout=0.5, n=2
        ).answer()
    await cluster.at_baseline(1.0)


@pytest.mark.serial
async def test_a_lost_frontend_takes_its_work_along(local_cluster):
    slow = {"engine.sim_decode_step_seconds": 0.1}
    cluster = await local_cluster(own=True, processes=("frontend-0",), settings=slow)
    streams = [
        cluster.client.generate(prompt_of(50, i), model=MODEL, max_tokens=200, ignore_eos=True)
        for i in range(8)
    ]

    async def first(stream) -> None:
        async for event in stream:
            if isinstance(event, Delta):
                return

    await asyncio.gather(*(first(stream) for stream in streams))
    cluster.frontend.kill()
    await cluster.at_baseline(1.0)
    for stream in streams:
        stream.close()
