"""KV that went to disk comes back as the same tokens, and rotten KV as no token at all."""

import asyncio
import os
from pathlib import Path

from baton.internal.v1.kvevents_pb2 import TIER_DISK
from baton.internal.v1.kvstore_pb2 import TierStat
from baton.kv.verify import ALWAYS, NEVER
from services.kvstore.disk.file import DiskFile
from tests.e2e.kv.test_reuse import turn
from tests.support.engine.model import TRAINED, prompt_of
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

MIB = 1024 * 1024
DISK_BYTES = 128 * MIB
TOKENS = 112
BLOCKS = TOKENS // 16
STEP_BYTES = 1023
"""Odd, so that every byte of a number is hit, and not only those that hardly count."""


async def tier_of(cluster: LocalCluster) -> TierStat | None:
    """The disk's own account; None before it is there."""
    tiers = {tier.tier: tier for tier in (await cluster.stat()).tiers}
    disk = tiers.get(TIER_DISK)
    return disk if disk is not None and disk.capacity_bytes else None


async def on_disk(cluster: LocalCluster) -> int:
    """Objects on disk, once the store has taken them in."""
    disk = await eventually(lambda: tier_of(cluster), 20)
    return disk.objects


async def restart(cluster: LocalCluster, verify: str, rot: Path | None = None) -> int:
    """Begin anew with nothing but the disk; answers how many bits of it were flipped before."""
    for service in (*cluster.workers, cluster.kvstore):
        assert await service.stop() == 0
    flipped = flip(rot) if rot is not None else 0
    for service in (cluster.kvstore, *cluster.workers):
        settings = {"store.verify": verify, "kv.verify": verify}
        await cluster.start(service.instance_id, settings)
    return flipped


def flip(path: Path) -> int:
    """Flip a bit every so often in every object in the file; answers how many."""
    disk = DiskFile(path, DISK_BYTES)
    flipped = 0
    try:
        with path.open("r+b") as file:
            for record in disk.records():
                for at in range(0, record.object_bytes, STEP_BYTES):
                    where = disk._data_at + record.offset + at
                    byte = os.pread(file.fileno(), 1, where)[0]
                    os.pwrite(file.fileno(), bytes([byte ^ 1 << flipped % 8]), where)
                    flipped += 1
            os.fsync(file.fileno())  # the store reads past the page cache
    finally:
        disk.close()
    return flipped


async def test_what_rots_on_disk_costs_time_and_no_token(local_cluster) -> None:
    cluster = await local_cluster(
        own=True,
        engine="torch",
        model=TRAINED,
        settings={
            "engine.dtype": "float64",
            "store.arena_bytes": 8 * MIB,
            "store.disk_bytes": DISK_BYTES,
        },
    )
    await on_disk(cluster)
    # 1.5 MiB each, which the disk takes in time: much of it leaves memory.
    clean = {}
    for seed in range(9):
        clean[seed], cached, _ = await turn(cluster, prompt_of(TOKENS, seed))
        assert cached == 0
        await asyncio.sleep(0.1)

    await restart(cluster, ALWAYS)
    assert await on_disk(cluster) >= BLOCKS
    for seed in clean:
        prompt = prompt_of(TOKENS, seed)
        again, cached, _ = await turn(cluster, prompt)
        assert again == clean[seed]
        if cached == TOKENS - 1:
            break
    assert cached == TOKENS - 1, "no prompt is on disk with all its blocks"

    # Unverified, the same bits become tokens: the injection works.
    assert await restart(cluster, NEVER, rot=cluster.directory_of("kvstore-0") / "kv.disk") > 1000
    await on_disk(cluster)
    rotten, cached, _ = await turn(cluster, prompt)
    assert rotten != clean[seed]
    assert cached == TOKENS - 1
    assert (await tier_of(cluster)).bad_objects == 0

    await restart(cluster, ALWAYS)
    await on_disk(cluster)
    again, cached, _ = await turn(cluster, prompt)
    assert again == clean[seed]
    assert cached == 0
    assert (await tier_of(cluster)).bad_objects >= BLOCKS
