"""A process is killed under load: nobody sees an error or another token than without it."""

import asyncio
from pathlib import Path

import pytest

from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

STREAMS = 16
TIMES = {
    "engine.sim_prefill_tokens_per_second": 3000,
    "engine.sim_decode_step_seconds": 0.02,
}


async def tokens_of(cluster: LocalCluster, i: int) -> tuple[int, ...]:
    stream = cluster.client.generate(
        prompt_of(150 + i, i), model=MODEL, max_tokens=40, ignore_eos=True, seed=i
    )
    return (await stream.answer()).token_ids


async def wave(cluster: LocalCluster) -> list[tuple[int, ...]]:
    return await asyncio.gather(*(tokens_of(cluster, i) for i in range(STREAMS)))


def expected_tokens(checkpoint: Path) -> list[tuple[int, ...]]:
    """The same requests on one engine in this process."""
    engine = create_engine(EngineSettings(kind="sim", model=checkpoint, sim_time_scale=0))
    requests = [
        SequenceRequest(
            i,
            b"root",
            prompt_of(150 + i, i),
            SamplingParams(seed=i, max_tokens=40, ignore_eos=True),
        )
        for i in range(STREAMS)
    ]
    return [tuple(output.tokens[0]) for output in run_local(engine, requests)]


@pytest.mark.parametrize("victim", ["prefill", "decode", "kvstore", "router"])
async def test_a_process_killed_under_load_fails_nobody(local_cluster, random_model, victim):
    expected = expected_tokens(random_model())
    cluster = await local_cluster(
        own=True, prefill=2, decode=2, processes=(f"{victim}-0",), settings=TIMES
    )
    killed = cluster[f"{victim}-0"]

    async def kill() -> None:
        if victim in ("prefill", "decode"):

            async def works() -> bool:
                return (await cluster.load(killed)).streams > 0

            await eventually(works)
        else:
            await asyncio.sleep(0.8)  # answers are written
        killed.kill()

    outputs, _ = await asyncio.gather(wave(cluster), kill())
    assert outputs == expected
    assert await wave(cluster) == expected  # and those who come afterwards

    if victim in ("prefill", "decode"):
        front = await cluster.frontend.metrics()
        assert front["baton_frontend_placement_retries_total"] > 0, "nothing was moved"
    for worker in cluster.workers:
        if worker.running:
            load = await cluster.load(worker)
            assert (load.streams, load.leases, load.reservations) == (0, 0, 0)
