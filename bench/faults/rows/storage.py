"""Memory and disks of KV stores go bad or are full."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.faults.rows.base import Rows
from bench.faults.scene import Scene
from bench.harness.fleet import Member

ROWS = Rows()
row = ROWS.add


@row("bits-in-memory", "bits flipped in a KV store's memory, 200 times a second")
async def _bits(scene: Scene) -> dict[str, Any]:
    return await _flip(scene, "baton-kv-*.arena", "baton_kv_bad_objects_total")


@row("bits-on-disk", "bits flipped in the disk tiers' files, 200 times a second")
async def _bits_on_disk(scene: Scene) -> dict[str, Any]:
    return await _flip(scene, "kv.disk", "baton_kv_tier_bad_objects_total")


async def _flip(scene: Scene, pattern: str, metric: str) -> dict[str, Any]:
    paths = sorted(scene.directory.glob(f"host-*/{pattern}"))
    before = await scene.sum(metric, "kvstore")
    flipped, end = 0, time.monotonic() + 8
    while time.monotonic() < end:
        path = scene.draw.choice(paths)
        file = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(file).st_size
            for _ in range(2):
                at = scene.draw.randrange(size // 8, size)  # the head holds no KV
                (byte,) = os.pread(file, 1, at)
                os.pwrite(file, bytes([byte ^ 1 << scene.draw.randrange(8)]), at)
                flipped += 1
        finally:
            os.close(file)
        await asyncio.sleep(0.01)
    return {"flipped": flipped, "noticed": await scene.sum(metric, "kvstore") - before}


@row("disk-full", "a KV store starts on a full disk, which has room later")
async def _disk_full(scene: Scene) -> dict[str, Any]:
    store = scene.fleet["kvstore-1"]
    place = scene.directory / "small"
    place.mkdir()
    await scene.fleet.terminate(store.id)
    async with _mounted(place, "size=1m") as mounted:
        if not mounted:
            await scene.start(store.id)
            return {"mounted": False}
        path = {"BATON_STORE_DISK_PATH": str(place / "kv.disk")}
        await scene.start(store.id, settings=path)
        failed = await _disk_failed(store, wanted=1.0, seconds=20)
        await asyncio.sleep(2)
        await _run("mount", "-o", "remount,size=64m", str(place))
        healed = await _disk_failed(store, wanted=0.0, seconds=40)
        await scene.fleet.terminate(store.id)
    await scene.start(store.id)
    return {"alarm": failed, "healed": healed}


async def _disk_failed(store: Member, wanted: float, seconds: float) -> bool:
    """Wait until a store's alarm has a value; return whether it came to that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (await store.metrics()).get("baton_kv_disk_failed") == wanted:
            return True
        await asyncio.sleep(0.1)
    return False


@asynccontextmanager
async def _mounted(place: Path, options: str) -> AsyncIterator[bool]:
    """Mount a file system in memory; yields whether this user may."""
    mounted = await _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place))
    try:
        yield mounted
    finally:
        if mounted:
            await _run("umount", "--lazy", str(place))


async def _run(*command: str) -> bool:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait() == 0
