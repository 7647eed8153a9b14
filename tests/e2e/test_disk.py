"""KV that went to disk comes back as the same tokens, and rotten KV as no token at all."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from baton.internal.v1.kvevents_pb2 import TIER_DISK
from baton.kv.verify import ALWAYS, NEVER
from services.kvstore.disk.file import DiskFile
from tests.e2e.conftest import MODEL, Cluster, empty_engines
from tests.e2e.test_exactness import prompt_of
from tests.e2e.test_reuse import turn
from tests.support.model import ROOT

MIB = 1024 * 1024
DISK_BYTES = 128 * MIB
TOKENS = 112
BLOCKS = TOKENS // 16
STEP_BYTES = 1023
"""Odd, so that every byte of a number is hit, and not only those that hardly count."""


async def on_disk(cluster: Cluster) -> int:
    """Objects on disk, once the store has taken them in."""
    async with asyncio.timeout(20):
        while True:
            tiers = {tier.tier: tier for tier in (await cluster.stat()).tiers}
            if TIER_DISK in tiers and tiers[TIER_DISK].capacity_bytes:
                return tiers[TIER_DISK].objects
            await asyncio.sleep(0.05)


async def restart(cluster: Cluster, rot: Path | None = None) -> int:
    """Begin anew with nothing but the disk; answers how many bits of it were flipped before."""
    assert await cluster.kvstore.stop() == 0
    flipped = flip(rot) if rot is not None else 0
    cluster.kvstore = await cluster.spawn("kvstore", cluster.kvstore.instance_id)
    await empty_engines(cluster)
    return flipped


def flip(path: Path) -> int:
    """Flip a bit every so often in every object in the file; answers how many."""
    disk = DiskFile(path, DISK_BYTES)
    flipped = 0
    try:
        with path.open("r+b") as file:
            for record in disk.records():
                for at in range(0, record.stored_bytes, STEP_BYTES):
                    where = disk._data_at + record.offset + at
                    byte = os.pread(file.fileno(), 1, where)[0]
                    os.pwrite(file.fileno(), bytes([byte ^ 1 << flipped % 8]), where)
                    flipped += 1
            os.fsync(file.fileno())  # the store reads past the page cache
    finally:
        disk.close()
    return flipped


@pytest.mark.parametrize("verify", [ALWAYS, NEVER])
async def test_what_rots_on_disk_costs_time_and_no_token(
    start_cluster, tmp_path: Path, verify: str
) -> None:
    model = tmp_path / MODEL
    shutil.copytree(ROOT / "models" / "baton-tiny", model)
    cluster = await start_cluster(
        engine="torch",
        env={
            "BATON_ENGINE_MODEL": str(model),
            "BATON_MODELS": str(model),
            "BATON_ENGINE_DTYPE": "float64",
            "BATON_KV_ARENA_BYTES": str(32 * MIB),
            "BATON_KV_DISK_BYTES": str(DISK_BYTES),
            "BATON_KV_VERIFY": verify,
        },
    )
    await on_disk(cluster)
    # 1.5 MiB each, which the disk takes in time: much of it leaves memory.
    clean = {}
    for seed in range(32):
        clean[seed], cached, _ = await turn(cluster, prompt_of(TOKENS, seed))
        assert cached == 0
        await asyncio.sleep(0.1)

    await restart(cluster)
    assert await on_disk(cluster) >= BLOCKS
    for seed in clean:
        prompt = prompt_of(TOKENS, seed)
        again, cached, _ = await turn(cluster, prompt)
        assert again == clean[seed]
        if cached == TOKENS - 1:
            break
    assert cached == TOKENS - 1, "no prompt is on disk with all its blocks"

    flipped = await restart(cluster, rot=tmp_path / "kv.disk")
    assert flipped > 1000
    await on_disk(cluster)
    rotten, cached, _ = await turn(cluster, prompt)
    bad = {tier.tier: tier.bad_objects for tier in (await cluster.stat()).tiers}[TIER_DISK]
    if verify == ALWAYS:
        assert rotten == clean[seed]
        assert cached == 0
        assert bad >= BLOCKS
    else:
        assert rotten != clean[seed]
        assert cached == TOKENS - 1
        assert bad == 0
    await cluster.at_baseline()
