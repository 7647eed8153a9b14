"""Clients that ask for many choices at once: none of them fails, nor anyone beside them."""

import asyncio
from typing import Any

import pytest

from baton.client import ApiError
from baton.errors import Reason
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster, patient_client

RUNNING, WAITING = 16, 8
SMALL = {
    "engine.max_running": RUNNING,
    "engine.max_waiting": WAITING,
    "engine.sim_decode_step_seconds": 0.002,
    "engine.sim_decode_sequence_seconds": 0.0,
}
STREAMS, CHOICES = 16, 8
"""What the first clients ask for: five times what the decode worker takes at once."""
NEIGHBOURS, ROUNDS = 16, 2


async def flood(cluster: LocalCluster) -> None:
    """Ask for many choices and for one at a time, and check that each answer is whole."""
    async with patient_client(cluster.frontend.address, retries=0) as client:

        async def ask(number: int, n: int, tokens: int) -> Any:
            stream = client.generate(
                prompt_of(40, number),
                model=MODEL,
                n=n,
                max_tokens=tokens,
                ignore_eos=True,
                temperature=1.0,
                seed=number,
            )
            answer = await stream.answer()
            assert [len(one.token_ids) for one in answer.choices] == [tokens] * n
            return [one.token_ids for one in answer.choices]

        async def neighbour(number: int) -> None:
            for again in range(ROUNDS):
                await ask(1_000 + number * ROUNDS + again, 1, 8)

        async with asyncio.TaskGroup() as clients:
            crowd = [clients.create_task(ask(one, CHOICES, 30)) for one in range(STREAMS)]
            for number in range(NEIGHBOURS):
                clients.create_task(neighbour(number))
        for number in (0, STREAMS - 1):
            alone = await ask(number, CHOICES, 30)
            assert alone == crowd[number].result(), "tokens are those without a crowd"


async def handed_back(cluster: LocalCluster) -> float:
    metrics = await cluster.frontend.metrics()
    return metrics.get("baton_frontend_streams_handed_back_total", 0.0)


@pytest.mark.parametrize("pools", [{}, {"prefill": 0, "decode": 0, "combined": 1}])
async def test_what_a_router_admitted_has_room(local_cluster: Any, pools: dict[str, int]) -> None:
    cluster = await local_cluster(own=True, settings=SMALL, **pools)
    await flood(cluster)
    assert await handed_back(cluster) == 0
    metrics = await cluster.frontend.metrics()
    assert not metrics.get("baton_frontend_random_placements_total")


async def test_without_a_router_what_has_no_room_waits_for_some(local_cluster: Any) -> None:
    cluster = await local_cluster(own=True, settings=SMALL)
    await cluster["router-0"].stop()
    await flood(cluster)
    assert await handed_back(cluster) > 0


async def test_more_choices_than_a_worker_ever_takes_are_refused_by_name(
    local_cluster: Any,
) -> None:
    cluster = await local_cluster(own=True, settings=SMALL)
    asked = {"model": MODEL, "max_tokens": 4, "ignore_eos": True}
    most = RUNNING + WAITING
    answer = await cluster.client.generate(prompt_of(40), n=most, **asked).answer()
    assert len(answer.choices) == most
    with pytest.raises(ApiError) as refused:
        await cluster.client.generate(prompt_of(40), n=most + 1, **asked).answer()
    assert (refused.value.reason, refused.value.field) == (Reason.INVALID_FIELD.name, "n")
    assert f"{most + 1} choices exceed the limit of every worker ({most}" in str(refused.value)
