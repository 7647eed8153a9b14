"""The router that holds a queue is killed: all of it is answered by way of another router."""

import asyncio

from baton.client import Answer
from tests.e2e.faults.test_faults import STREAMS, expected_tokens
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

READ_SECONDS = 1.8
"""What one prefill worker takes for all prompts: the last ones wait while the first are read."""
PROMPT_TOKENS = sum(150 + number for number in range(STREAMS))


async def placed_at_random(cluster: LocalCluster) -> float:
    """Return how many requests the frontend placed without a router."""
    return (await cluster.frontend.metrics()).get("baton_frontend_random_placements_total", 0)


async def test_requests_that_wait_in_a_router_that_is_killed_wait_in_another(
    local_cluster, random_model
) -> None:
    expected = expected_tokens(random_model())
    cluster: LocalCluster = await local_cluster(
        own=True,
        processes=("router-0",),
        settings={
            "engine.sim_prefill_tokens_per_second": PROMPT_TOKENS / READ_SECONDS,
            "engine.sim_decode_step_seconds": 0.005,
            "engine.chunk_tokens": 64,
            # A router that is killed is gone at once; one that waits for a processor is not gone.
            "placement.silence_seconds": 10,
            "placement.answer_seconds": 10,
        },
    )
    first, second = cluster.router, await cluster.start("router-1")
    at_random = await placed_at_random(cluster)  # what came before the frontend had a session

    async def ask(number: int) -> Answer:
        prompt = prompt_of(150 + number, number)
        stream = cluster.client.generate(
            prompt, model=MODEL, max_tokens=40, ignore_eos=True, seed=number
        )
        return await stream.answer()

    asked = [asyncio.create_task(ask(number)) for number in range(STREAMS)]

    async def read() -> bool:
        """Some prompts were read: the rates of the worker are known, and others wait."""
        return any(task.done() for task in asked)

    await eventually(read)
    first.kill()
    answers = await asyncio.gather(*asked)
    assert [answer.token_ids for answer in answers] == expected
    routes = [step for answer in answers for step in answer.steps if step.name == "route"]
    moved = [
        step
        for step in routes
        if step.instance == second.instance_id and "in the router's queue" in step.detail
    ]
    assert moved, "nothing waited in the router that was killed"
    assert await placed_at_random(cluster) == at_random
    await cluster.at_baseline()
    front = await cluster.frontend.metrics()
    assert front["baton_frontend_tickets"] == 0
