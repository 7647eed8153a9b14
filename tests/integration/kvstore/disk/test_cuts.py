"""What served a cut and serves none goes first, from memory and from disk."""

from collections.abc import Sequence
from pathlib import Path

from baton.cli.inspect.kv.tables import objects_table
from baton.internal.v1 import cluster_pb2, kvstore_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.keys import pack
from baton.kv.objects import ObjectId
from services.kvstore.api.admin import list_objects
from services.kvstore.store import Store
from tests.integration.kvstore.disk.objects import SIZE, in_tiers, still
from tests.support.stores import LAYOUT, MIB, connected, keys_of, running_store

BLOCKS = 96
GROUPS = [
    cluster_pb2.KvGroup(kind="full", block_bytes=SIZE),
    cluster_pb2.KvGroup(kind="state", block_bytes=SIZE),
]


async def put_chain(client: KvStoreClient, group: int, blocks: Sequence[int]) -> None:
    keys = keys_of(BLOCKS)
    reservation = await client.reserve(
        [keys[block] for block in blocks],
        LAYOUT,
        SIZE,
        group=group,
        chain=kvstore_pb2.BlockChain(
            groups=GROUPS,
            block_tokens=16,
            blocks=blocks,
            previous=pack([keys[block - 1] if block else bytes(16) for block in blocks]),
        ),
    )
    try:
        await reservation.commit(sorted(reservation.slots))
    finally:
        await reservation.aclose()


def shown(store: Store) -> list[list[str]]:
    """Return the groups and prefixes that `baton kv ls` prints of the chain's last block."""
    asked = kvstore_pb2.ListRequest(key_prefix=keys_of(BLOCKS)[-1])
    found = list_objects(store, asked).objects
    rows = objects_table([("store", info) for info in found]).rows
    return [[cell.plain for cell in cells[2:4]] for cells, _ in rows]


def unneeded(store: Store) -> tuple[int, int]:
    """Count objects that are evicted first, in memory and on disk."""
    assert store.disk is not None
    in_memory = sum(slot.unneeded for slot in store.table.slots())
    return in_memory, sum(entry.unneeded for entry in store.disk.index.entries())


async def test_a_lost_state_leaves_its_chain_to_be_evicted_first_in_every_tier(
    tmp_path: Path,
) -> None:
    async with running_store(tmp_path, 4 * MIB, disk_path=tmp_path / "disk") as running:
        store = running.store
        async with connected(running.address, "shm") as client:
            for first in range(0, BLOCKS, 8):
                await put_chain(client, 0, range(first, first + 8))
                await still(running)
            await put_chain(client, 1, [BLOCKS - 1])
            await still(running)
            memory, disk = map(len, in_tiers(store))
            assert min(memory, disk) > 30
            assert unneeded(store) == (0, 0)
            assert shown(store) == [["full", "1536"], ["state", "1536"]]
            assert store.drop(ObjectId(LAYOUT, keys_of(BLOCKS)[-1], 1))
            assert shown(store) == [["full", "unneeded"]]
            in_memory, on_disk = unneeded(store)
            assert store.cuts.unneeded == BLOCKS
            assert in_memory + on_disk >= BLOCKS
            assert min(in_memory, on_disk) > 30
            # They make room, and are not written to disk first.
            assert store.disk is not None
            before = len(store.disk.index)
            for first in range(0, 32, 8):
                keys = keys_of(32, "other")[first : first + 8]
                reservation = await client.reserve(keys, LAYOUT, SIZE)
                assert await reservation.commit(sorted(reservation.slots)) == len(keys)
                await reservation.aclose()
                await still(running)
            assert len(store.disk.index) <= before
            assert 0 < store.cuts.unneeded < BLOCKS
        await running.at_baseline()
