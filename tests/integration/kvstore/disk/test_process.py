"""A store's process and its disk: killed amid writes, restarted, refused a disk, full."""

import asyncio
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvevents_pb2 import TIER_DISK
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import StoreUnavailableError
from baton.rpc.channels import open_channel
from baton.settings import StartupError
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import (
    MIB,
    block,
    connected,
    get,
    keys_of,
    put,
    wait_memory,
    wait_stat,
)
from tests.support.wait import eventually

SIZE = 256 * 1024
KEYS = 400


@pytest.fixture
def spawn_store(spawn_service, tmp_path: Path):
    """Starts a store's process with a small arena and a disk."""
    (tmp_path / "arena").mkdir()

    async def spawn(disk: Path = tmp_path / "disk", **env: str):
        return await spawn_service(
            "kvstore",
            {
                "BATON_STORE_ARENA_DIR": str(tmp_path / "arena"),
                "BATON_STORE_ARENA_BYTES": str(16 * MIB),
                "BATON_STORE_DISK_PATH": str(disk),
                "BATON_STORE_DISK_BYTES": str(256 * MIB),
                **env,
            },
            instance_id="store",
        )

    return spawn


async def disk_stat(address: str) -> pb.TierStat:
    channel = open_channel(address)
    try:
        stat = await KvStoreServiceStub(channel).Stat(pb.StatRequest(), timeout=DEADLINE_SECONDS)
        return next((tier for tier in stat.tiers if tier.tier == TIER_DISK), pb.TierStat())
    finally:
        await channel.close(None)


async def until_ready(address: str) -> pb.TierStat:
    """Wait until the disk is there."""

    async def is_there() -> pb.TierStat | None:
        tier = await disk_stat(address)
        return tier if tier.capacity_bytes else None

    return await eventually(is_there)


async def write_until_spilled(address: str, client, count: int) -> int:
    """Write until so many objects are on disk; return how many are.

    What is evicted faster than the disk takes it is lost, so that no number of writes is enough on
    every machine.
    """
    written = 0

    async def spilled() -> int:
        nonlocal written
        await put(client, [keys_of(KEYS)[written % KEYS]], SIZE, written % KEYS)
        written += 1
        objects = (await disk_stat(address)).objects
        return objects if objects > count else 0

    return await eventually(spilled)


async def write_on(client, first: int) -> None:
    """Write until the store is gone."""
    try:
        for number in range(first, first + 100_000):
            index = number % KEYS
            await put(client, [keys_of(KEYS)[index]], SIZE, index)
    except (StoreUnavailableError, BatonError):
        pass


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))]
)
async def test_a_store_killed_amid_writes_serves_no_torn_block(spawn_store, seed: int) -> None:
    draw = random.Random(seed)
    kept = 0
    for round_ in range(4):
        store = await spawn_store()
        await until_ready(store.address)
        async with connected(store.address, "shm") as client:
            found, missing = await get(client, keys_of(KEYS), SIZE)
            assert all(data == block(index, SIZE) for index, data in found.items())
            assert len(found) + len(missing) == KEYS
            kept += len(found)
            if round_ < 3:
                writing = asyncio.create_task(write_on(client, draw.randrange(KEYS)))
                spilled = draw.randint(20, 60)  # and then whatever else is under way
                while (await disk_stat(store.address)).objects < spilled:
                    await asyncio.sleep(0.005)
                store.kill()
                await writing
            else:
                assert (await disk_stat(store.address)).bad_objects == 0
    assert kept > 50


async def test_what_lies_on_disk_survives_an_orderly_end(start_service, tmp_path: Path) -> None:
    settings = {
        "store.arena_bytes": 16 * MIB,
        "store.disk_path": tmp_path / "disk",
        "store.disk_bytes": 256 * MIB,
    }
    store = await start_service("kvstore", settings)
    await until_ready(store.address)
    async with connected(store.address, "shm") as client:
        objects = await write_until_spilled(store.address, client, 20)
    assert await store.stop() == 0
    store = await start_service("kvstore", settings)
    assert (await until_ready(store.address)).objects >= objects


async def test_a_disk_that_can_not_be_had_is_an_alarm_and_no_error(
    spawn_store, tmp_path: Path
) -> None:
    store = await spawn_store(tmp_path / "no" / "such" / "place")
    await wait_memory(store.address, 16 * MIB)
    async with connected(store.address, "shm") as client:
        assert await put(client, keys_of(8), SIZE) == 8
        found, missing = await get(client, keys_of(8), SIZE)
        assert not missing
        assert found[7] == block(7, SIZE)
    assert "No such file" in (await disk_stat(store.address)).failed
    channel = open_channel(store.address)
    try:
        ask = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        part = health_pb2.HealthCheckRequest(service="baton.kv.disk")

        async def alarmed() -> bool:
            return (await ask.Check(part, timeout=DEADLINE_SECONDS)).status != serving

        await eventually(alarmed)
        ready = health_pb2.HealthCheckRequest(service="readiness")
        assert (await ask.Check(ready, timeout=DEADLINE_SECONDS)).status == serving
    finally:
        await channel.close(None)
    assert "disk tier disabled, using DRAM only" in store.log_tail(200)
    assert await store.stop() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


async def test_a_full_disk_is_an_alarm_and_is_used_once_there_is_room(
    start_service, small_disk: Path
) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(16 * MIB))
    store = await start_service(
        "kvstore",
        {
            "store.arena_bytes": 4 * MIB,
            "store.disk_path": small_disk / "disk",
            "store.disk_bytes": 16 * MIB,
            "store.disk_retry_seconds": 0.2,
            "store.disk_max_retry_seconds": 0.2,
        },
    )

    async def failed() -> str:
        return (await disk_stat(store.address)).failed

    async def works() -> bool:
        return not await failed()

    assert "No space left" in await eventually(failed)
    await wait_memory(store.address, 4 * MIB)
    assert (small_disk / "disk").stat().st_size == 0  # it takes nothing from who needs it more
    async with connected(store.address, "shm") as client:
        assert await put(client, keys_of(8), SIZE) == 8
        filler.unlink()
        await eventually(works)
        await write_until_spilled(store.address, client, 4)


async def test_more_disk_than_there_is_is_an_alarm(start_service, tmp_path: Path) -> None:
    settings = {"store.disk_path": tmp_path / "disk", "store.disk_bytes": 900 << 40}
    store = await start_service("kvstore", {"store.arena_bytes": 16 * MIB, **settings})
    await wait_stat(store.address, capacity_bytes=16 * MIB)
    async with connected(store.address, "shm") as client:
        assert await put(client, keys_of(8), SIZE) == 8

    async def failed() -> str:
        return (await disk_stat(store.address)).failed

    await eventually(failed)
    assert await store.stop() == 0


async def test_a_size_without_a_path_says_what_to_do(start_service) -> None:
    with pytest.raises(StartupError, match="BATON_STORE_DISK_PATH"):
        await start_service("kvstore", {"store.disk_bytes": 1 << 30})
