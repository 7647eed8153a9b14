"""Put frames that no good client sends: refused by name, nothing corrupted, nothing leaked."""

import pytest

from baton.errors import Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.digest import object_digest
from services.kvstore.api.admin import stat
from tests.integration.kvstore.api.raw import (
    DATA,
    DIGEST,
    KEY,
    Raw,
    chunk,
    commit,
    error_of,
    reserve,
)
from tests.support.stores import (
    LAYOUT,
    MIB,
    RunningStore,
)

BAD_RESERVES = {
    "correlation_id": [reserve(correlation_id=-1)],
    "layout": [reserve(layout_id=b"short"), reserve(layout_id=b"")],
    "keys": [reserve(keys=b""), reserve(keys=KEY + b"x"), reserve(keys=KEY * 4097)],
    "tenant": [reserve(tenant="t" * 129)],
    "recompute_seconds": [
        reserve(recompute_seconds=-1.0),
        reserve(recompute_seconds=float("inf")),
        reserve(recompute_seconds=float("nan")),
    ],
    "object_bytes": [reserve(object_bytes=0), reserve(object_bytes=-5)],
    "part": [
        reserve(part=pb.ObjectPart(group=-1)),
        reserve(part=pb.ObjectPart(shard=70_000)),
        reserve(part=pb.ObjectPart(part=-1)),
    ],
}


async def test_bad_reserves(raw: Raw, store: RunningStore) -> None:
    stream = await raw.open("Put")
    await stream.read()
    for field, frames in BAD_RESERVES.items():
        for frame in frames:
            stream.send(frame)
            assert (await error_of(stream)).reason is Reason.INVALID_FIELD, field
    assert stat(store.store).reservations == 0
    stream.send(reserve())  # the stream goes on
    assert len((await stream.read()).reserved.indexes) == 1


async def test_an_object_larger_than_the_arena_finds_no_room(raw: Raw) -> None:
    stream = await raw.open("Put")
    await stream.read()
    stream.send(reserve(object_bytes=1 << 50))
    assert list((await stream.read()).reserved.exhausted) == [0]


async def test_a_reservation_number_is_used_once_at_a_time(raw: Raw) -> None:
    stream = await raw.open("Put")
    await stream.read()
    stream.send(reserve())
    await stream.read()
    stream.send(reserve())
    assert (await error_of(stream)).field == "correlation_id"


BAD_CHUNKS = [
    chunk(number=2),
    chunk(index=1),
    chunk(index=-1),
    chunk(offset=1),
    chunk(offset=-1),
    chunk(DATA + b"x"),
    chunk(b""),
    chunk(b"x" * (MIB + 1)),
]


async def test_chunks_out_of_range_change_nothing(raw: Raw, store: RunningStore) -> None:
    stream = await raw.open("Put")
    await stream.read()
    stream.send(reserve())
    await stream.read()
    for bad in BAD_CHUNKS:
        stream.send(bad)
        assert (await error_of(stream)).reason in (Reason.INVALID_FIELD, Reason.NOT_FOUND)
    stream.send(chunk())
    stream.send(commit())
    assert (await stream.read()).committed.readable == 1
    (slot,) = store.store.table.slots()
    assert bytes(store.store.arena.view(slot)) == DATA


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([commit(number=7)], Reason.NOT_FOUND),
        ([reserve(), commit(3)], Reason.NOT_FOUND),
        ([reserve(), commit(0)], Reason.INVALID_FIELD),  # no bytes came
        ([reserve(), chunk(DATA[:50]), commit(0)], Reason.INVALID_FIELD),
        ([reserve(), chunk(), commit(0, digests=b"short")], Reason.INVALID_FIELD),
        ([reserve(), chunk(), commit(0, digests=b"x" * 16)], Reason.DATA_LOSS),
        ([reserve(), chunk(), commit(0, 0, digests=DIGEST * 2)], Reason.INVALID_FIELD),
        ([reserve(keys=KEY * 2), chunk(), commit(0, 1, digests=DIGEST * 2)], Reason.INVALID_FIELD),
    ],
)
async def test_bad_commits_make_nothing_readable(
    raw: Raw, store: RunningStore, frames: list[pb.PutRequest], reason: Reason
) -> None:
    stream = await raw.open("Put")
    await stream.read()
    for frame in frames:
        stream.send(frame)
    if frames[0].HasField("reserve"):
        await stream.read()
    assert (await error_of(stream)).reason is reason
    assert stat(store.store).objects == 0


async def test_a_commit_after_the_reservation_lapsed_is_not_readable(
    raw: Raw, store: RunningStore
) -> None:
    stream = await raw.open("Put")
    await stream.read()
    stream.send(reserve())
    await stream.read()
    store.store.expire_slots(store.store.table.slots())
    stream.send(chunk())
    stream.send(commit())
    assert (await stream.read()).committed.readable == 0


async def test_objects_of_different_shards_are_different_objects(
    raw: Raw, store: RunningStore
) -> None:
    stream = await raw.open("Put")
    await stream.read()
    for shard in range(3):
        part = pb.ObjectPart(shard=shard)
        digest = object_digest(KEY, LAYOUT, 0, shard, 0, memoryview(DATA))
        number = shard + 1
        stream.send(reserve(correlation_id=number, part=part))
        assert len((await stream.read()).reserved.indexes) == 1
        stream.send(chunk(number=number))
        stream.send(commit(0, digests=digest, number=number))
        assert (await stream.read()).committed.readable == 1
    assert stat(store.store).objects == 3
    store.store.log.flush()
    assert sum(map(len, store.store.log.contents().values())) == 1  # one block
