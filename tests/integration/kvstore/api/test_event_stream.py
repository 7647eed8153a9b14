"""The event stream over gRPC: a mirror follows the store through breaks and restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1.kvevents_pb2 import TIER_DRAM
from baton.internal.v1.kvevents_pb2_grpc import KvEventServiceStub
from baton.kv.events.replica import BlockReplica, BlockSpace
from baton.rpc.channels import open_channel
from tests.support.stores import LAYOUT, RunningStore, connected, get, keys_of, put, running_store
from tests.support.wait import eventually

SPACE = BlockSpace(LAYOUT, TIER_DRAM)


@asynccontextmanager
async def following(mirror: BlockReplica, address: str) -> AsyncIterator[list[str]]:
    """Apply the stream to the mirror until the context is left; yields the kinds that came."""
    kinds: list[str] = []
    channel = open_channel(address)
    stub: Any = KvEventServiceStub(channel)
    call = stub.Watch(mirror.request())
    mirror.opened()

    async def follow() -> None:
        async for message in call:
            kinds.append(message.WhichOneof("event"))
            mirror.apply(message)

    task = asyncio.create_task(follow())
    try:
        yield kinds
    finally:
        call.cancel()
        task.cancel()
        await asyncio.wait([task])
        await channel.close(None)


async def test_a_mirror_follows_stores_evictions_and_a_break(store: RunningStore) -> None:
    mirror = BlockReplica()
    async with connected(store.address) as client:
        keys = keys_of(300)
        await put(client, keys[:10], 64 * 1024)
        async with following(mirror, store.address) as kinds:
            await eventually(lambda: mirror.held == {SPACE: set(keys[:10])})
            assert kinds[0] == "snapshot"
            await put(client, keys[10:20], 64 * 1024)
            await eventually(lambda: mirror.held == {SPACE: set(keys[:20])})
        await put(client, keys[20:30], 64 * 1024)
        async with following(mirror, store.address) as kinds:
            await eventually(lambda: mirror.held == {SPACE: set(keys[:30])})
            assert "snapshot" not in kinds  # it resumed
            for at in range(30, 300, 10):  # more than fits: the oldest go
                await put(client, keys[at : at + 10], 64 * 1024)
            store.store.log.flush()
            await eventually(lambda: mirror.held == store.store.log.contents())
            assert len(mirror.held[SPACE]) < 300


async def test_dropped_and_partial_blocks_are_told_too(tmp_path: Path) -> None:
    mirror = BlockReplica()
    async with (
        running_store(tmp_path, partial_seconds=1) as store,  # long enough to be seen
        connected(store.address) as client,
        following(mirror, store.address),
    ):
        keys = keys_of(3)
        reservation = await client.reserve(keys, LAYOUT, 4096, last_is_partial=True)
        assert await reservation.commit([0, 1, 2]) == 3
        await reservation.aclose()
        await eventually(lambda: mirror.held == {SPACE: set(keys)})
        await eventually(lambda: mirror.held == {SPACE: set(keys[:2])})
        slot = next(s for s in store.store.table.slots() if s.object_id.key == keys[0])
        store.store.arena.view(slot)[0] ^= 1
        await get(client, keys[:1], 4096)
        await eventually(lambda: mirror.held == {SPACE: {keys[1]}})


async def test_a_new_epoch_begins_with_a_snapshot(tmp_path: Path) -> None:
    mirror = BlockReplica()
    async with (
        running_store(tmp_path) as store,
        connected(store.address) as client,
        following(mirror, store.address),
    ):
        await put(client, keys_of(2), 4096)
        await eventually(lambda: mirror.held)
    async with running_store(tmp_path) as store, following(mirror, store.address):
        await eventually(lambda: not mirror.held)
        assert mirror.epoch == store.store.log.epoch


async def test_a_heartbeat_tells_a_lost_last_event(store: RunningStore) -> None:
    mirror = BlockReplica()
    async with connected(store.address) as client:
        async with following(mirror, store.address):
            await eventually(lambda: mirror.epoch)
            await put(client, keys_of(1), 4096)
            await eventually(lambda: mirror.held)
            mirror.sequence -= 1  # as if the last event had been lost
            await eventually(lambda: mirror.stale, 2)
        async with following(mirror, store.address):
            await eventually(lambda: not mirror.stale and mirror.sequence == 1)


async def test_a_subscriber_that_does_not_read_is_cut_and_can_resume(store: RunningStore) -> None:
    channel = open_channel(store.address)
    stub: Any = KvEventServiceStub(channel)
    mirror = BlockReplica()
    call = stub.Watch(mirror.request())
    mirror.apply(await call.read())
    log = store.store.log
    keys = [number.to_bytes(16, "big") for number in range(4096)]
    for turn in range(1000):
        # 64 KiB a message, and nobody reads: gRPC's buffers fill, then the queue.
        for key in keys:
            (log.evicted if turn % 2 else log.stored)(LAYOUT, TIER_DRAM, key)
        log.flush()
        await asyncio.sleep(0)
        if log.subscribers == 0:
            break
    assert log.subscribers == 0
    with pytest.raises(grpc.RpcError) as caught:
        while await call.read() is not None:
            pass
    assert BatonError.from_rpc_error(caught.value).reason is Reason.SLOW_CONSUMER
    call.cancel()
    await channel.close(None)
    async with following(mirror, store.address):
        await eventually(lambda: mirror.sequence == log.sequence)
