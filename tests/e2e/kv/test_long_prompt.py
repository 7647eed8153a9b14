"""A prompt far beyond the context in which its model was trained, through a whole cluster."""

import asyncio
import json
from pathlib import Path

from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.internal.v1.kvevents_pb2 import TIER_DRAM
from baton.kv.keys import chain_root
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from services.kvstore.disk.spill import HEADROOM_PART
from tests.e2e.kv.test_disk import on_disk
from tests.e2e.kv.test_reuse import SAMPLING
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

MIB = 1024 * 1024
SECONDS = 600.0
"""Routers refuse what a busy machine would not begin in time."""
CONTEXT, TOKENS = 8192, 6000
ENGINE = {"dtype": "float64", "native": "off", "kv_bytes": 12 * MIB}


def yarn(path: Path) -> Path:
    """Write a tiny model whose context of 1,024 tokens is stretched to 8,192."""
    write_random_checkpoint(
        path, heads=1, kv_heads=1, head_size=32, hidden=32, mlp=32, context=CONTEXT
    )
    config = json.loads((path / "config.json").read_text())
    config["rope_parameters"] = {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 1024,
    }
    (path / "config.json").write_text(json.dumps(config))
    return path


def one_engine(model: Path, prompt: list[int]) -> tuple[int, ...]:
    """The tokens of an engine without a cluster, which computes the whole prompt."""
    engine = create_engine(EngineSettings.model_validate({"model": model, "threads": 1, **ENGINE}))
    try:
        root = chain_root(MODEL, engine.info.weights_digest, engine.info.layout.layout_id, b"", b"")
        request = SequenceRequest(0, root, prompt, SamplingParams(**SAMPLING), (0,))
        return tuple(run_local(engine, [request])[0].tokens[0])
    finally:
        engine.close_engine()


async def answer(cluster: LocalCluster, prompt: list[int]) -> tuple[tuple[int, ...], int]:
    """The output, and the tokens of the prompt that were found."""
    found = await cluster.client.generate(prompt, model=MODEL, timeout=SECONDS, **SAMPLING).answer()
    return found.token_ids, found.usage.cached_tokens


async def has_headroom(cluster: LocalCluster) -> bool:
    """Whether the store spilled what it keeps free of its memory."""
    (memory,) = (tier for tier in (await cluster.stat()).tiers if tier.tier == TIER_DRAM)
    return memory.used_bytes <= memory.capacity_bytes * (1 - 1 / HEADROOM_PART)


async def test_a_stretched_prompt_is_answered_and_continues_from_disk(
    local_cluster, tmp_path: Path
) -> None:
    model = yarn(tmp_path / MODEL)
    cluster = await local_cluster(
        own=True,
        engine="torch",
        model=model,
        settings={
            **{f"engine.{name}": value for name, value in ENGINE.items()},
            "store.arena_bytes": 8 * MIB,
            "store.disk_bytes": 64 * MIB,
        },
    )
    await on_disk(cluster)
    prompt = prompt_of(TOKENS)
    first, cached = await answer(cluster, prompt)
    # Not on the event loop: a cluster that says nothing for seconds counts as dead.
    assert (first, cached) == (await asyncio.to_thread(one_engine, model, prompt), 0)

    # Other prompts push it out of the store's memory, no faster than the disk takes it.
    for seed in range(8):
        await answer(cluster, prompt_of(1000, seed))
        await eventually(lambda: has_headroom(cluster), 60)
    for service in (*cluster.workers, cluster.kvstore):
        assert await service.stop() == 0
    for service in (cluster.kvstore, *cluster.workers):
        await cluster.start(service.instance_id)
    await on_disk(cluster)
    again, cached = await answer(cluster, prompt)
    assert again == first
    assert cached > TOKENS // 2
