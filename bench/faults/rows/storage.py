"""Faults of KV stores' memory and disks: corrupted or full."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from baton.kv.arena.file import PAGE_BYTES
from bench.faults.rows.base import Rows
from bench.faults.scene import Scene
from bench.harness.fleet import Member
from services.kvstore.disk.file import GRANULE_BYTES, RECORD_BYTES

ROWS = Rows()
row = ROWS.add


FLIP_SECONDS = 8.0
OBJECT_BYTES = 256
"""Bytes of a block of the simulated engine."""
PROMPTS = 40
PROMPT_TOKENS = 240
DRAWS = 50
"""Random granules to try for one in use: not all records are read for each bit."""
DISK = {"BATON_STORE_DISK_BYTES": "64MiB"}
"""Holds everything written during the row, so that repeated prompts are found only on the disk."""


@row("bits-in-memory", "200 bit flips per second in KV store memory")
async def _bits(scene: Scene) -> dict[str, Any]:
    before = await scene.sum("baton_kv_bad_objects_total", "kvstore")
    flipped = await _flip(scene, "baton-kv-*.arena", _in_memory)
    noticed = await scene.sum("baton_kv_bad_objects_total", "kvstore") - before
    return {"flipped": flipped, "noticed": noticed}


@row(
    "bits-on-disk",
    "200 bit flips per second in disk tier files, then KV reads from disk",
    gap_seconds=15,  # its stores are killed first, to restart with larger disks
)
async def _bits_on_disk(scene: Scene) -> dict[str, Any]:
    prompts = [[scene.draw.randrange(3, 250) for _ in range(PROMPT_TOKENS)] for _ in range(PROMPTS)]
    stores = [store.id for store in scene.fleet.of("kvstore")]
    await _restart(scene, stores, DISK)
    await _ask(scene, prompts)
    # Meanwhile the load replaces them in engines and in memory.
    flipped = await _flip(scene, "kv.disk", _on_disk)
    read, bad = "baton_kv_disk_read_bytes_total", "baton_kv_tier_bad_objects_total"
    before = {name: await scene.sum(name, "kvstore") for name in (read, bad)}
    await _ask(scene, prompts)
    after = {name: await scene.sum(name, "kvstore") - before[name] for name in (read, bad)}
    await _restart(scene, stores, {})
    return {"flipped": flipped, "read_bytes": after[read], "noticed": after[bad]}


async def _restart(scene: Scene, stores: Sequence[str], settings: Mapping[str, str]) -> None:
    """Restart stores one after the other with other settings and empty disks."""
    for name in stores:
        scene.fleet.kill(name)
        await scene.fleet.wait_ended(name)
        for path in scene.directory.glob(f"host-{name.rpartition('-')[2]}/kv.disk*"):
            path.unlink()
        await scene.start(name, settings=settings)


async def _ask(scene: Scene, prompts: Sequence[list[int]]) -> None:
    """Send prompts to the cluster; the outputs are checked by the load."""
    async with httpx.AsyncClient(timeout=30) as http:
        for prompt in prompts:
            port = scene.pick("frontend").http_port
            body = {"model": "baton-tiny", "prompt": prompt, "max_tokens": 1}
            answer = await http.post(f"http://127.0.0.1:{port}/v1/completions", json=body)
            answer.raise_for_status()


Place = Callable[[random.Random, int], int | None]
"""Returns the position of an object's first bytes in an open file; None: there is none."""


async def _flip(scene: Scene, pattern: str, place: Place) -> int:
    """Flip bits of objects in files for FLIP_SECONDS; return the number of bits."""
    paths = sorted(scene.directory.glob(f"host-*/{pattern}"))
    flipped, end = 0, time.monotonic() + FLIP_SECONDS
    while time.monotonic() < end:
        file = os.open(scene.draw.choice(paths), os.O_RDWR)
        try:
            for _ in range(2):
                if (begin := place(scene.draw, file)) is not None:
                    at = begin + scene.draw.randrange(OBJECT_BYTES)
                    (byte,) = os.pread(file, 1, at)
                    os.pwrite(file, bytes([byte ^ 1 << scene.draw.randrange(8)]), at)
                    flipped += 1
        finally:
            os.close(file)
        await asyncio.sleep(0.01)
    return flipped


def _in_memory(draw: random.Random, file: int) -> int:
    pages = os.fstat(file).st_size // PAGE_BYTES
    return draw.randrange(pages // 8, pages) * PAGE_BYTES  # the head holds no KV


def _on_disk(draw: random.Random, file: int) -> int | None:
    """Return the position of an object that has a record; see services/kvstore/disk/file.py."""
    granules = (os.fstat(file).st_size - PAGE_BYTES) // (GRANULE_BYTES + RECORD_BYTES)
    data = PAGE_BYTES + -(-granules * RECORD_BYTES // PAGE_BYTES) * PAGE_BYTES
    for _ in range(DRAWS):
        number = draw.randrange(granules)
        if any(os.pread(file, 16, PAGE_BYTES + number * RECORD_BYTES)):
            return data + number * GRANULE_BYTES
    return None


@row("disk-full", "KV store started on a full disk that is freed later")
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
    """Wait until a store's alarm has a value; return whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (await store.metrics()).get("baton_kv_disk_failed") == wanted:
            return True
        await asyncio.sleep(0.1)
    return False


@asynccontextmanager
async def _mounted(place: Path, options: str) -> AsyncIterator[bool]:
    """Mount a file system in memory; yield whether this user may."""
    mounted = await _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place))
    try:
        yield mounted
    finally:
        if mounted:
            await _run("umount", "--lazy", str(place))


async def _run(*command: str) -> bool:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait() == 0
