"""A decode worker that runs vLLM is killed amid streams, and nobody sees another token."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from baton.client import Delta
from baton.telemetry.logs import get_logger
from tests.e2e.vllm.conftest import VLLM, Reference, prompts
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster

log = get_logger(__name__)

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-clusters"), pytest.mark.timeout(900)]

OUTPUT_TOKENS = 60
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.9, "repetition_penalty": 1.1, "seed": 3},
    {"temperature": 0, "adapter": "other"},
]


async def killed_stream(
    cluster: LocalCluster, prompt: list[int], kill_after: int, options: dict[str, Any]
) -> list[int]:
    """Return the tokens of a stream whose decode worker is killed once it has sent some."""
    stream = cluster.client.generate(
        prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, **options
    )
    killed = False
    async for event in stream:
        if isinstance(event, Delta) and len(stream.token_ids) >= kill_after and not killed:
            loads = await asyncio.gather(*map(cluster.load, cluster.decodes))
            (victim,) = [
                worker for worker, load in zip(cluster.decodes, loads, strict=True) if load.streams
            ]
            victim.kill()
            killed = True
    assert killed
    return list(stream.token_ids)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
async def test_a_killed_decode_worker_changes_no_token(
    local_cluster: Any, reference: Reference, llama: Path, adapter: Path, kills: int
) -> None:
    asked = prompts(kills, longest=400, seed=11)
    kinds = [KINDS[i % len(KINDS)] for i in range(kills)]
    expected = await reference(
        llama, asked, OUTPUT_TOKENS, sampling=kinds, adapters={"other": str(adapter)}
    )
    settings = VLLM["settings"] | {"engine.adapters": f"other={adapter}"}
    names = ("prefill-0", "decode-0", "decode-1")
    shape = VLLM | {"decode": 2, "processes": names, "settings": settings}
    cluster = await local_cluster(own=True, **shape, model=llama)
    equal = 0
    for number, (prompt, kind) in enumerate(zip(asked, kinds, strict=True)):
        tokens = await killed_stream(cluster, prompt, 3 + 7 * number % 50, kind)
        equal += tokens == expected[number][0]
        for worker in cluster.decodes:
            if not worker.running:
                await cluster.start(worker.instance_id)
    log.info("vllm.test.killed", same=equal, of=kills)
    assert equal == kills
