"""Frames that no good client sends: refused by name, nothing corrupted, nothing leaked."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.digest import object_digest, start_digest
from baton.kv.objects import ObjectId
from baton.rpc.channels import open_channel
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from services.kvstore.api.admin import stat
from tests.integration.kvstore.conftest import (
    LAYOUT,
    MIB,
    RunningStore,
    connected,
    eventually,
    get,
    keys_of,
    put,
)

KEY = keys_of(1)[0]
DATA = b"d" * 100
DIGEST = object_digest(KEY, LAYOUT, 0, 0, 0, memoryview(DATA))


class Raw:
    """Speaks the protocol by hand, without shared memory."""

    def __init__(self, address: str) -> None:
        self.channel = open_channel(address)
        self.stub: Any = KvStoreServiceStub(self.channel)
        self.streams: list[ClientStream[Any, Any]] = []

    async def open(self, method: str, **more: object) -> ClientStream[Any, Any]:
        request = pb.AttachRequest(client_id="raw", incarnation="1")
        session = await self.stub.Attach(request, timeout=5)
        stream = self.unopened(method)
        opening = pb.Open(**{"session_id": session.session_id, **more})
        kind = pb.PutRequest if method == "Put" else pb.GetRequest
        stream.send(kind(open=opening))
        return stream

    def unopened(self, method: str) -> ClientStream[Any, Any]:
        stream: ClientStream[Any, Any] = ClientStream(getattr(self.stub, method)(), SendQueue())
        self.streams.append(stream)
        return stream

    async def aclose(self) -> None:
        for stream in self.streams:
            await stream.aclose()
        await self.channel.close(None)


@pytest.fixture
async def raw(store: RunningStore) -> AsyncIterator[Raw]:
    speaker = Raw(store.address)
    yield speaker
    await speaker.aclose()
    await eventually(lambda: stat(store.store).sessions == 0, 1)


async def ended(stream: ClientStream[Any, Any]) -> Reason:
    with pytest.raises(BatonError) as caught:
        while True:
            await stream.read()
    return caught.value.reason


def reserve(**more: object) -> pb.PutRequest:
    values = {"correlation_id": 1, "layout_id": LAYOUT, "keys": KEY, "object_bytes": 100}
    return pb.PutRequest(reserve=pb.Reserve(**{**values, **more}))


def read_frame(**more: object) -> pb.GetRequest:
    values = {"correlation_id": 1, "layout_id": LAYOUT, "keys": KEY}
    return pb.GetRequest(read=pb.Read(**{**values, **more}))


def chunk(data: bytes = DATA, offset: int = 0, index: int = 0, number: int = 1) -> pb.PutRequest:
    frame = pb.WriteChunk(correlation_id=number, indexes=[index], offset_bytes=offset, data=data)
    return pb.PutRequest(write_chunk=frame)


def commit(*indexes: int, digests: bytes = DIGEST, number: int = 1) -> pb.PutRequest:
    frame = pb.Commit(correlation_id=number, indexes=indexes or [0], digests=digests)
    return pb.PutRequest(commit=frame)


async def error_of(stream: ClientStream[Any, Any]) -> BatonError:
    frame = await stream.read()
    assert frame.WhichOneof("frame") == "error", frame
    return BatonError.from_status(frame.error.status)


@pytest.mark.parametrize("method", ["Put", "Get"])
async def test_streams_must_be_opened_by_a_session(raw: Raw, method: str) -> None:
    kind = pb.PutRequest if method == "Put" else pb.GetRequest
    stream = raw.unopened(method)
    stream.send(kind(open=pb.Open(session_id="made up")))
    assert await ended(stream) is Reason.NOT_FOUND
    stream = raw.unopened(method)
    stream.send(read_frame() if method == "Get" else reserve())
    assert await ended(stream) is Reason.INVALID_FIELD
    stream = await raw.open(method)
    await stream.read()
    stream.send(kind(open=pb.Open(session_id="again")))
    assert await ended(stream) is Reason.INVALID_FIELD
    stream = await raw.open(method)
    stream.send(kind())
    assert await ended(stream) is Reason.INVALID_FIELD


@pytest.mark.parametrize("field", ["client_id", "incarnation"])
async def test_attaching_needs_a_name(raw: Raw, field: str) -> None:
    request = pb.AttachRequest(client_id="c", incarnation="1")
    for value in ("", "x" * 1000):
        setattr(request, field, value)
        with pytest.raises(Exception, match=field):
            await raw.stub.Attach(request, timeout=5)


async def test_a_guessed_secret_gets_no_shared_memory(raw: Raw) -> None:
    for secret in (b"x" * 16, b"x"):
        stream = await raw.open("Put", arena_secret=secret, writer_lock="nothing")
        assert (await stream.read()).opened.transport == "grpc"


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "baton-kv-00.writer", "baton-kv-00.arena", "/etc/passwd"]
)
async def test_shared_memory_needs_a_lock_that_is_held(
    raw: Raw, store: RunningStore, name: str
) -> None:
    secret = store.store.arena.header.secret
    stream = await raw.open("Put", arena_secret=secret, writer_lock=name)
    assert await ended(stream) is Reason.INVALID_FIELD


async def test_a_lock_that_nobody_holds_proves_a_dead_writer(raw: Raw, store: RunningStore) -> None:
    path = store.store.arena.path.parent / "baton-kv-abc.writer"
    path.touch()
    secret = store.store.arena.header.secret
    stream = await raw.open("Put", arena_secret=secret, writer_lock=path.name)
    assert await ended(stream) is Reason.INVALID_FIELD


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


@pytest.mark.parametrize("field", BAD_RESERVES)
async def test_bad_reserves(raw: Raw, store: RunningStore, field: str) -> None:
    stream = await raw.open("Put")
    await stream.read()
    for frame in BAD_RESERVES[field]:
        stream.send(frame)
        assert (await error_of(stream)).reason is Reason.INVALID_FIELD
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


@pytest.mark.parametrize("bad", range(len(BAD_CHUNKS)))
async def test_chunks_out_of_range_change_nothing(raw: Raw, store: RunningStore, bad: int) -> None:
    stream = await raw.open("Put")
    await stream.read()
    stream.send(reserve())
    await stream.read()
    stream.send(BAD_CHUNKS[bad])
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


BAD_READS = [
    read_frame(correlation_id=0),
    read_frame(layout_id=b""),
    read_frame(tenant="\u00e4" * 65),
    read_frame(keys=b"x"),
    read_frame(keys=b""),
    read_frame(keys=KEY * 65_537),
    read_frame(part=pb.ObjectPart(group=-1)),
    read_frame(sources=[pb.KvSource(store_id="s", address="no port")]),
    read_frame(sources=[pb.KvSource(store_id="", address="h:1")]),
    read_frame(sources=[pb.KvSource(store_id="s", address="h:1")] * 17),
]


@pytest.mark.parametrize("bad", range(len(BAD_READS) + 2))
async def test_bad_wants(raw: Raw, store: RunningStore, bad: int) -> None:
    stream = await raw.open("Get")
    await stream.read()
    if bad < len(BAD_READS):
        frame = BAD_READS[bad]
    else:
        frame = read_frame()
        frame.read.wait.seconds = [-1, 10**9][bad - len(BAD_READS)]
    stream.send(frame)
    assert (await error_of(stream)).reason is Reason.INVALID_FIELD
    assert stat(store.store).waiters == 0
    stream.send(read_frame())
    assert (await stream.read()).missing.timed_out == [0]


MANY = KEY * 10_000_000
"""Ten million keys: 160 MB in one message."""


@pytest.mark.parametrize(
    ("method", "frame"),
    [
        ("Get", lambda: read_frame(keys=MANY)),
        ("Get", lambda: pb.GetRequest(report_read=pb.ReportRead(layout_id=LAYOUT, keys=MANY))),
        ("Put", lambda: reserve(keys=MANY)),
        ("Put", lambda: pb.PutRequest(will_not_come=pb.WillNotCome(layout_id=LAYOUT, keys=MANY))),
        ("Lookup", lambda: pb.LookupRequest(layout_id=LAYOUT, keys=MANY)),
        ("Prefetch", lambda: pb.PrefetchRequest(layout_id=LAYOUT, keys=MANY)),
        ("Drop", lambda: pb.DropRequest(layout_id=LAYOUT, keys=MANY)),
    ],
)
async def test_ten_million_keys_are_refused_and_leave_nothing(
    raw: Raw, store: RunningStore, method: str, frame: Callable[[], Any]
) -> None:
    # The client's own limit would keep them from being sent.
    unbounded = [("grpc.max_send_message_length", -1)]
    await raw.channel.close(None)
    raw.channel = grpc.aio.insecure_channel(store.address, options=unbounded)
    raw.stub = KvStoreServiceStub(raw.channel)
    if method in ("Get", "Put"):
        stream = await raw.open(method)
        await stream.read()
        stream.send(frame())
        assert (await ended(stream)).code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await eventually(lambda: stat(store.store).sessions == 0, 1)
    else:
        with pytest.raises(grpc.RpcError) as caught:
            await getattr(raw.stub, method)(frame(), timeout=10)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in caught.value.details()
    await store.quiet(1)
    assert (stat(store.store).objects, stat(store.store).misses) == (0, 0)


@pytest.mark.parametrize("keys", [b"", KEY[:-1], KEY * 65_537])
@pytest.mark.parametrize("layout", [LAYOUT, b"", b"unknown"])
async def test_bad_lookups_and_denials(
    raw: Raw, store: RunningStore, keys: bytes, layout: bytes
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        await raw.stub.Lookup(pb.LookupRequest(layout_id=layout, keys=keys), timeout=5)
    assert BatonError.from_rpc_error(caught.value).reason is Reason.INVALID_FIELD
    stream = await raw.open("Put")
    await stream.read()
    stream.send(pb.PutRequest(will_not_come=pb.WillNotCome(layout_id=layout, keys=keys)))
    assert await ended(stream) is Reason.INVALID_FIELD
    await store.quiet(1)


async def test_a_layout_that_nobody_uses_is_nothing_that_is_held(
    raw: Raw, store: RunningStore
) -> None:
    async with connected(store.address, "grpc") as client:
        await put(client, [KEY], 64)
    stream = await raw.open("Get")
    await stream.read()
    stream.send(read_frame(layout_id=b"U" * 16))
    assert (await stream.read()).missing.timed_out == [0]
    lookup = pb.LookupRequest(layout_id=b"U" * 16, keys=KEY)
    assert (await raw.stub.Lookup(lookup, timeout=5)).held == b"\0"


async def test_clients_that_stop_mid_stream_leave_nothing(raw: Raw, store: RunningStore) -> None:
    # Reserved, half written, all written and not committed; waiting, leased, half sent.
    async with connected(store.address, "grpc") as client:
        await put(client, keys_of(4, "there"), 3 * MIB // 4)
    before = stat(store.store)
    writer, reader = await raw.open("Put"), await raw.open("Get")
    for stream in (writer, reader):
        await stream.read()
    for number in (1, 2, 3):
        writer.send(reserve(correlation_id=number, keys=keys_of(1, f"new{number}")[0]))
        await writer.read()
    writer.send(chunk(DATA[:50], number=2))
    writer.send(chunk(number=3))
    there = pb.Read(
        correlation_id=1, layout_id=LAYOUT, keys=b"".join(keys_of(4, "there")), send_bytes=True
    )
    waiting = read_frame(correlation_id=2)
    waiting.read.wait.seconds = 600
    reader.send(pb.GetRequest(read=there))
    reader.send(waiting)
    assert (await reader.read()).HasField("ready")
    counts = stat(store.store)
    assert (counts.reservations, counts.waiters > 0, counts.leases > 0) == (3, True, True)
    for stream in (writer, reader):
        await stream.aclose()
    await eventually(lambda: stat(store.store).sessions == 0, 1)
    assert store.counts() == (0, 0, 0, 0, 0)
    after = stat(store.store)
    assert (after.objects, after.committed_bytes) == (before.objects, before.committed_bytes)
    assert after.tiers[0].used_bytes == before.tiers[0].used_bytes


async def test_a_client_that_claims_what_it_never_wrote_has_it_dropped_by_the_first_reader(
    store: RunningStore,
) -> None:
    # Through shared memory the store cannot see what was written; its readers do.
    keys = keys_of(8)
    async with connected(store.address, "shm") as liar, connected(store.address, "shm") as reader:
        reservation = await liar.reserve(keys, LAYOUT, 4096)
        try:
            for index in reservation.slots:
                data = memoryview(b"never written" * 400)[:4096]
                name = ObjectId(LAYOUT, keys[index])
                digest = start_digest(name, 4096)
                digest.update(data)
                reservation._digests[index] = digest.digest()
            assert await reservation.commit(range(8)) == 8
        finally:
            await reservation.aclose()
        assert stat(store.store).objects == 8
        assert await get(reader, keys, 4096) == ({}, set(range(8)))
        await eventually(lambda: stat(store.store).objects == 0)
        assert stat(store.store).bad_objects == 8
        assert await put(reader, keys, 4096) == 8  # computed again
        assert len((await get(liar, keys, 4096))[0]) == 8
        assert store.store.table.free_bytes == store.store.arena.header.data_bytes - 8 * 4096
    await store.quiet(1)


async def test_leases_of_others_cannot_be_named(raw: Raw, store: RunningStore) -> None:
    put = await raw.open("Put")
    await put.read()
    for frame in (reserve(), chunk(), commit()):
        put.send(frame)
    await put.read()
    await put.read()
    one, two = await raw.open("Get"), await raw.open("Get")
    await one.read()
    await two.read()
    one.send(read_frame())
    ready = (await one.read()).ready
    (lease_id,) = ready.lease_ids
    assert ready.done
    for name, message in (
        ("fetch", pb.Fetch),
        ("release", pb.Release),
        ("report_bad", pb.ReportBad),
    ):
        for lease in (lease_id, 0, -1, 10**12):
            two.send(pb.GetRequest(**{name: message(lease_ids=[lease])}))
            assert (await error_of(two)).reason is Reason.INVALID_FIELD
    assert stat(store.store).leases == 1
    assert stat(store.store).objects == 1
    # Its own reader may fetch it, release it, and release it again.
    one.send(pb.GetRequest(fetch=pb.Fetch(lease_ids=[lease_id])))
    sent = (await one.read()).read_chunk
    assert (sent.lease_ids, sent.pieces_bytes, sent.data) == ([lease_id], [100], DATA)
    for _ in range(2):
        one.send(pb.GetRequest(release=pb.Release(lease_ids=[lease_id])))
    one.send(pb.GetRequest(fetch=pb.Fetch(lease_ids=[lease_id])))
    gone = (await one.read()).read_chunk
    assert (gone.lease_ids, gone.pieces_bytes, gone.data) == ([lease_id], [0], b"")


async def test_cancelling_is_always_answered_by_done(raw: Raw, store: RunningStore) -> None:
    stream = await raw.open("Get")
    await stream.read()
    waiting = read_frame()
    waiting.read.wait.seconds = 60
    stream.send(waiting)
    for number in (1, 99):
        stream.send(pb.GetRequest(cancel_read=pb.CancelRead(correlation_id=number)))
        assert (await stream.read()).done.correlation_id == number
    assert stat(store.store).waiters == 0


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


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("List", pb.ListRequest(key_prefix=b"k" * 17), "key_prefix"),
        ("List", pb.ListRequest(layout_id=b"short"), "layout_id"),
        ("List", pb.ListRequest(limit=-1), "limit"),
        ("List", pb.ListRequest(limit=10_001), "limit"),
        ("List", pb.ListRequest(page=b"made up"), "page"),
        ("List", pb.ListRequest(tenant="t" * 129), "tenant"),
        ("Drop", pb.DropRequest(), "keys"),
        ("Drop", pb.DropRequest(keys=KEY + b"x"), "keys"),
        ("Drop", pb.DropRequest(keys=KEY * 65_537), "keys"),
        ("Drop", pb.DropRequest(keys=KEY, layout_id=b"short"), "layout_id"),
    ],
)
async def test_bad_lists_and_drops(raw: Raw, method: str, request_: Any, field: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        await getattr(raw.stub, method)(request_, timeout=5)
    error = BatonError.from_rpc_error(caught.value)
    assert error.reason is Reason.INVALID_FIELD
    assert field in str(error)


async def test_pages_of_a_list_hold_every_object_once(raw: Raw, store: RunningStore) -> None:
    async with connected(store.address, "grpc") as client:
        keys = keys_of(25)
        await put(client, keys, 64)
        seen, page = [], b""
        while True:
            answer = await raw.stub.List(pb.ListRequest(limit=4, page=page), timeout=5)
            seen += [info.key for info in answer.objects]
            page = answer.next_page
            if not page:
                break
        assert seen == sorted(keys)
        assert (
            await raw.stub.Drop(pb.DropRequest(keys=keys[1] + b"nowhere to be fd"), timeout=5)
        ).dropped == 1
