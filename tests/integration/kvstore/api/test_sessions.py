"""Who may open a stream, and with which transport; whoever stops leaves nothing."""

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from baton.rpc.protocol import VERSION
from services.kvstore.api.admin import stat
from tests.integration.kvstore.api.raw import DATA, Raw, chunk, ended, read_frame, reserve
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import LAYOUT, MIB, RunningStore, connected, get, keys_of, put
from tests.support.wait import eventually


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
    request = pb.AttachRequest(client_id="c", incarnation="1", protocol_version=VERSION)
    for value in ("", "x" * 1000):
        setattr(request, field, value)
        with pytest.raises(Exception, match=field):
            await raw.stub.Attach(request, timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("version", [0, VERSION + 2])
async def test_a_client_of_another_protocol_is_refused(raw: Raw, version: int) -> None:
    request = pb.AttachRequest(client_id="c", incarnation="1", protocol_version=version)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await raw.stub.Attach(request, timeout=DEADLINE_SECONDS)
    assert BatonError.from_rpc_error(refused.value).reason is Reason.PROTOCOL_MISMATCH


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
        stream.close()
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
    await store.at_baseline(1)
