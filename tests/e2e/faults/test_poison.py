"""A request that kills its worker kills two, and no other one fails."""

import asyncio
from pathlib import Path

import pytest

from baton.client import ApiError, AsyncClient
from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.errors import Reason
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import patient_client

INNOCENTS = [[token % 256 for token in prompt_of(150 + number, number)] for number in range(20)]
TOKENS = 20
WORKERS = ("prefill-0", "prefill-1", "prefill-2", "decode-0")


def expected_tokens(checkpoint: Path) -> list[tuple[int, ...]]:
    """The same requests on one engine in this process."""
    engine = create_engine(EngineSettings(kind="sim", model=checkpoint, sim_time_scale=0))
    sampling = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
    requests = [
        SequenceRequest(number, b"root", prompt, sampling)
        for number, prompt in enumerate(INNOCENTS)
    ]
    return [tuple(output.tokens[0]) for output in run_local(engine, requests)]


async def test_twenty_innocents_beside_one_that_kills_its_worker(
    local_cluster, random_model
) -> None:
    expected = expected_tokens(random_model())
    deadly = max({*range(256, 512)}.difference(*expected))
    poison = [*INNOCENTS[0][:100], deadly, 3]
    cluster = await local_cluster(
        own=True,
        prefill=3,
        processes=WORKERS,
        settings={
            "engine.sim_kill_token": deadly,
            "engine.sim_prefill_tokens_per_second": 3000,
            "engine.sim_decode_step_seconds": 0.01,
        },
    )

    async def ask(client: AsyncClient, prompt: list[int]) -> tuple[int, ...]:
        stream = client.generate(
            prompt, model=MODEL, max_tokens=TOKENS, ignore_eos=True, temperature=0
        )
        return (await stream.answer()).token_ids

    async def refused(client: AsyncClient) -> None:
        with pytest.raises(ApiError) as caught:
            await ask(client, poison)
        assert caught.value.reason == Reason.POISON_REQUEST.name

    killing = asyncio.create_task(refused(cluster.client))
    answers = await asyncio.gather(*(ask(cluster.client, prompt) for prompt in INNOCENTS))
    assert answers == expected
    await killing
    await refused(cluster.client)
    other = await cluster.start("frontend-1")
    async with patient_client(other.address) as client:
        await refused(client)
        assert await ask(client, INNOCENTS[0]) == answers[0]
    assert sum(not cluster[name].running for name in WORKERS) == 2
