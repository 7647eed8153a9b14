"""Objects of groups that are not what they claim to be cost time and no token."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import KvStoreClient
from baton.kv.objects import ObjectId
from baton.rpc.channels import open_channel
from tests.e2e.kv.test_groups import TABLES, Reference, ask, settings_of
from tests.support.engine.model import prompt_of
from tests.support.services.cluster import LocalCluster

Objects = Mapping[ObjectId, bytes]
TABLE = TABLES[1]
SHORT = "baton_worker_kv_cuts_short_total"


class StoreHand:
    """Reaches into a store past its workers.

    Args:
        client: of the store.
        stub: of the store.
        arena: its file.
    """

    def __init__(self, client: KvStoreClient, stub: Any, arena: Path) -> None:
        self._client = client
        self._stub = stub
        self._arena = arena

    async def objects(self) -> dict[ObjectId, bytes]:
        """Return copies of all objects that hold full blocks."""
        copies = {}
        for info in (await self._stub.List(pb.ListRequest(limit=10_000))).objects:
            group = info.part.group
            fetching = self._client.fetch(
                [info.key], info.layout_id, info.object_bytes, group=group
            )
            try:
                async for batch in fetching:
                    for fetched in batch:
                        copy = bytearray(fetched.nbytes)
                        if fetched.copy_to(memoryview(copy)) and not info.partial:
                            copies[ObjectId(info.layout_id, info.key, group)] = bytes(copy)
            finally:
                await fetching.aclose()
        return copies

    def overwrite(self, objects: Objects, others: Objects) -> int:
        """Put other bytes in the places of objects; return how many were found."""
        found = 0
        with self._arena.open("r+b") as file:
            data = file.read()
            for name, other in others.items():
                at = data.find(objects[name])
                if at >= 0 and other != objects[name]:
                    file.seek(at)
                    file.write((other * 8)[: len(objects[name])])
                    found += 1
        return found

    async def shorten(self, objects: Objects) -> int:
        """Replace blocks by objects that are valid and too short; return how many."""
        keys = {name.key for name in objects if name.group}
        await self._stub.Drop(pb.DropRequest(keys=b"".join(keys)))
        names = [name for name in objects if name.key in keys]
        for name in names:
            less = len(objects[name]) // 2
            reservation = await self._client.reserve(
                [name.key], name.layout_id, less, group=name.group
            )
            try:
                reservation.slots[0][:] = objects[name][:less]
                reservation.seal(0)
                assert await reservation.commit([0]) == 1
            finally:
                await reservation.aclose()
        return len(names)


@asynccontextmanager
async def reached(cluster: LocalCluster) -> AsyncIterator[StoreHand]:
    address = cluster.kvstore.instance.address
    channel = open_channel(address)
    (arena,) = cluster.directory_of("kvstore-0").glob("*.arena")
    try:
        async with KvStoreClient(lambda: address, "test", "1") as client:
            assert await client.wait_connected(30)
            yield StoreHand(client, KvStoreServiceStub(channel), arena)
    finally:
        await channel.close(None)


def forged(objects: Objects) -> Objects:
    draw = random.Random(1)
    return {name: draw.randbytes(len(data)) for name, data in objects.items() if name.group}


def of_another_group(objects: Objects) -> Objects:
    at_key: dict[bytes, dict[int, bytes]] = {}
    for name, data in objects.items():
        at_key.setdefault(name.key, {})[name.group] = data
    return {name: at_key[name.key][0] for name in objects if name.group and 0 in at_key[name.key]}


def of_another_cut(objects: Objects) -> Objects:
    replaced = {}
    for group in {name.group for name in objects} - {0}:
        names = sorted(name for name in objects if name.group == group)
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            replaced[name] = objects[other]
    return replaced


async def short_cuts(cluster: LocalCluster) -> float:
    counters = [await worker.metrics() for worker in cluster.workers]
    return sum(n for one in counters for key, n in one.items() if key.startswith(SHORT))


async def test_objects_that_are_not_what_they_claim_cost_time_and_no_token(
    local_cluster: Any, random_model: Any
) -> None:
    reference = Reference(random_model(), TABLE)
    cluster: LocalCluster = await local_cluster(own=True, settings=settings_of(TABLE))
    prompt = prompt_of(325)
    expected = reference.tokens(prompt)
    assert (await ask(cluster, prompt))[0] == expected
    for make in (forged, of_another_group, of_another_cut, None):
        await cluster.at_baseline()
        async with reached(cluster) as hand:
            objects = await hand.objects()
            if make is None:
                changed = await hand.shorten(objects)
            else:
                changed = hand.overwrite(objects, make(objects))
            assert changed >= 2, make
        before = (await cluster.stat()).bad_objects
        await cluster.empty_engines()
        tokens, cached = await ask(cluster, prompt)
        assert tokens == expected, make
        assert cached < 320, make
        assert await short_cuts(cluster) > 0, make
        if make is not None:  # the digests of short ones are right
            assert (await cluster.stat()).bad_objects > before, make
    await cluster.at_baseline()
