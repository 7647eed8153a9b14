"""Workers are killed in bfloat16: where sums do not see the batch, no token changes."""

import asyncio
from typing import Any

import pytest

from baton.client import Delta
from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.native.build import build
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster

STREAMS = 12
OUTPUT_TOKENS = 160
KILLED_AFTER = 20
"""Tokens of half of the streams."""
DECODES = ("decode-0", "decode-1")
SETTINGS = {"dtype": "bfloat16", "native": "required", "deterministic": "required"}


@pytest.fixture(scope="module", autouse=True)
def operators() -> None:
    """Compiled operators: without a compiler this fails, since nothing else would say so."""
    build()


def sampling(i: int) -> SamplingParams:
    """Every other answer is greedy, the rest are drawn with a seed."""
    return SamplingParams(
        seed=i, temperature=i % 2 * 1.0, max_tokens=OUTPUT_TOKENS, ignore_eos=True
    )


async def test_workers_killed_in_bfloat16_change_no_token(
    local_cluster: Any, random_model: Any
) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True,
        prefill=2,
        decode=2,
        engine="torch",
        processes=("prefill-0", *DECODES),
        settings={f"engine.{name}": value for name, value in SETTINGS.items()},
    )
    begun = asyncio.Semaphore(0)

    async def tokens_of(i: int) -> tuple[int, ...]:
        params = sampling(i)
        stream = cluster.client.generate(
            prompt_of(150 + i, i),
            model=MODEL,
            seed=i,
            temperature=params.temperature,
            max_tokens=OUTPUT_TOKENS,
            ignore_eos=True,
        )
        tokens: list[int] = []
        async with stream:
            async for event in stream:
                if isinstance(event, Delta):
                    before = len(tokens)
                    tokens += event.token_ids
                    if before < KILLED_AFTER <= len(tokens):
                        begun.release()
        return tuple(tokens)

    async def kill() -> None:
        for _ in range(STREAMS // 2):
            await begun.acquire()
        # The first answers may all have gone to either: kill the one that is at work.
        streams = {name: (await cluster.load(cluster[name])).streams for name in DECODES}
        busiest = max(DECODES, key=streams.__getitem__)
        assert streams[busiest] > 0, "no answer was being written"
        for name in (busiest, "prefill-0"):
            cluster[name].kill()

    *outputs, _ = await asyncio.gather(*map(tokens_of, range(STREAMS)), kill())
    front = await cluster.frontend.metrics()
    assert front["baton_frontend_placement_retries_total"] > 0, "nothing was moved"
    assert outputs == await asyncio.to_thread(expected_tokens, random_model())


def expected_tokens(checkpoint: Any) -> list[tuple[int, ...]]:
    """The same requests on one engine in this process, one after the other."""
    engine = create_engine(
        EngineSettings.model_validate(
            {"model": checkpoint, "threads": 1, "kv_bytes": 64 * 2**20, **SETTINGS}
        )
    )
    found = []
    for i in range(STREAMS):
        request = SequenceRequest(i, b"root", prompt_of(150 + i, i), sampling(i))
        (output,) = run_local(engine, [request])
        found.append(tuple(output.tokens[0]))
    engine.close_engine()
    return found
