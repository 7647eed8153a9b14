"""Objects that go to disk, and what lies where."""

import asyncio

from baton.internal.v1 import kvevents_pb2
from baton.kv.client.client import KvStoreClient
from services.kvstore.store import Store
from tests.support.clock import within
from tests.support.stores import LAYOUT, RunningStore, block, keys_of

SIZE = 64 * 1024


DRAM = kvevents_pb2.TIER_DRAM
DISK = kvevents_pb2.TIER_DISK


async def fill(
    running: RunningStore,
    client: KvStoreClient,
    count: int,
    salt: str = "",
    tenant: str = "",
    size: int = SIZE,
) -> None:
    """Write blocks no faster than the disk takes them."""
    batch = 8 * SIZE // size
    for first in range(0, count, batch):
        keys = keys_of(count, salt)[first : first + batch]
        reservation = await client.reserve(keys, LAYOUT, size, tenant=tenant)
        try:
            for index, view in reservation.slots.items():
                view[:] = block(first + index, size)
            assert await reservation.commit(sorted(reservation.slots)) == len(keys)
        finally:
            await reservation.aclose()
        await still(running)


def right(found: dict[int, bytes]) -> bool:
    return all(data == block(index, SIZE) for index, data in found.items())


def held(store: Store) -> dict[int, set[bytes]]:
    """Keys by tier, as announced."""
    store.log.flush()
    return {space.tier: keys for space, keys in store.log.contents().items()}


def in_tiers(store: Store) -> tuple[set[bytes], set[bytes]]:
    assert store.disk is not None
    above = {slot.object_id.key for slot in store.table.objects()}
    return above, {e.object_id.key for e in store.disk.index.entries() if e.readable}


def announced_rightly(store: Store) -> None:
    above, below = in_tiers(store)
    assert held(store).get(DRAM, set()) == above
    assert held(store).get(DISK, set()) == below - above


async def still(running: RunningStore) -> None:
    """Wait until nothing moves."""
    tier = running.store.disk
    assert tier is not None

    def is_idle() -> bool:
        running.store.flush()  # the next batch begins, if there is one
        return bool(tier.failed) or not tier.busy

    async with within(5):
        while not is_idle():
            await asyncio.sleep(0.001)
