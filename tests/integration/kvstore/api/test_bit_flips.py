"""A thousand flipped bits, each below verification: all are noticed, and none reaches a reader.

The same flips do reach readers that verify nothing: the injection works.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from baton.errors import BatonError, Reason
from baton.kv.client.client import KvStoreClient
from baton.kv.verify import ALWAYS, NEVER
from baton.settings import KvSettings
from services.kvstore.api.admin import stat
from tests.support.network.proxy import MARK_BYTES, FlippingProxy
from tests.support.stores import LAYOUT, RunningStore
from tests.support.wait import eventually

SIZE = 16 * 1024


BATCH = 50


@asynccontextmanager
async def client_of(address: str, transport: str, verify: str) -> AsyncIterator[KvStoreClient]:
    async with KvStoreClient(
        lambda: address, "client", "1", settings=KvSettings(transports=(transport,), verify=verify)
    ) as client:
        assert await client.wait_connected(10)
        assert client.transport == transport
        yield client


async def write(client: KvStoreClient, keys: list[bytes], blocks: list[bytes]) -> int:
    reservation = await client.reserve(keys, LAYOUT, SIZE)
    try:
        assert sorted(reservation.slots) == list(range(len(keys)))
        for index, data in enumerate(blocks):
            reservation.write(index, memoryview(data))
        return await reservation.commit(range(len(keys)))
    finally:
        await reservation.aclose()


async def read(client: KvStoreClient, keys: list[bytes]) -> dict[int, bytes]:
    """What a reader takes for right, by index."""
    found = {}
    fetching = client.fetch(keys, LAYOUT, SIZE)
    try:
        async for batch in fetching:
            for fetched in batch:
                copy = bytearray(SIZE)
                if fetched.copy_to(memoryview(copy)):
                    found[fetched.index] = bytes(copy)
    finally:
        await fetching.aclose()
    assert set(found) | fetching.missing == set(range(len(keys)))
    return found


def new_batch(draw: random.Random) -> tuple[list[bytes], list[bytes]]:
    return [draw.randbytes(16) for _ in range(BATCH)], [draw.randbytes(SIZE) for _ in range(BATCH)]


def wrong(found: dict[int, bytes], blocks: list[bytes]) -> set[int]:
    return {index for index, data in found.items() if data != blocks[index]}


@pytest.mark.parametrize("transport", ["shm", "grpc"])
@pytest.mark.parametrize(("verify", "flips"), [(ALWAYS, 250), (NEVER, 50)])
async def test_bits_flipped_in_the_arena(
    store: RunningStore, transport: str, verify: str, flips: int
) -> None:
    draw = random.Random(f"{transport} {verify}")
    async with client_of(store.address, transport, verify) as client:
        noticed = reached = 0
        for _ in range(flips // BATCH):
            keys, blocks = new_batch(draw)
            assert await write(client, keys, blocks) == BATCH
            for slot in store.store.table.slots():
                if slot.object_id.key in keys:
                    bit = draw.randrange(8 * SIZE)
                    store.store.arena.view(slot)[bit // 8] ^= 1 << bit % 8
            found = await read(client, keys)
            noticed += BATCH - len(found)
            reached += len(wrong(found, blocks))
        assert (noticed, reached) == ((flips, 0) if verify == ALWAYS else (0, flips))
        await eventually(lambda: stat(store.store).bad_objects == noticed)


@pytest.mark.parametrize(("verify", "flips"), [(ALWAYS, 400), (NEVER, 50)])
async def test_bits_flipped_on_the_way_to_a_reader(
    store: RunningStore, verify: str, flips: int
) -> None:
    draw = random.Random(verify)
    count = noticed = reached = 0
    async with (
        FlippingProxy(store.address, draw) as proxy,
        client_of(store.address, "grpc", ALWAYS) as writer,
        client_of(proxy.address, "grpc", verify) as reader,
    ):
        while count < flips:
            keys, blocks = new_batch(draw)
            assert await write(writer, keys, blocks) == BATCH
            ats = [draw.randrange(SIZE - MARK_BYTES) for _ in keys]
            proxy.flipped.clear()
            proxy.marks = {
                data[at : at + MARK_BYTES]: index
                for index, (data, at) in enumerate(zip(blocks, ats, strict=True))
            }
            found = await read(reader, keys)
            flipped = set(proxy.flipped)
            assert len(flipped) > BATCH // 2  # a mark may be cut in two by a read
            count += len(flipped)
            noticed += len(flipped - set(found))
            reached += len(wrong(found, blocks))
            assert wrong(found, blocks) <= flipped
            assert set(range(BATCH)) - flipped <= set(found)
    assert (noticed, reached) == ((count, 0) if verify == ALWAYS else (0, count))


async def test_bits_flipped_on_the_way_from_a_writer(store: RunningStore) -> None:
    # The store checks what it was sent whatever readers do.
    draw = random.Random(3)
    count = 0
    async with (
        FlippingProxy(store.address, draw) as proxy,
        client_of(proxy.address, "grpc", NEVER) as client,
    ):
        while count < 100:
            keys, blocks = [draw.randbytes(16)], [draw.randbytes(SIZE)]
            at = draw.randrange(SIZE - MARK_BYTES)
            proxy.flipped.clear()
            proxy.marks = {blocks[0][at : at + MARK_BYTES]: 0}
            try:
                readable = await write(client, keys, blocks)
            except BatonError as error:
                assert error.reason is Reason.DATA_LOSS
                assert proxy.flipped
                count += 1
            else:
                assert readable == 1
                assert not proxy.flipped
            held = await client.lookup(keys, LAYOUT)
            assert held == [not proxy.flipped]
