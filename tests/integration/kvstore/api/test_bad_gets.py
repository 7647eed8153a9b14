"""Get frames that no good client sends: refused by name, nothing leaked."""

from google.protobuf.duration_pb2 import Duration

from baton.errors import Reason
from baton.internal.v1 import kvstore_pb2 as pb
from services.kvstore.api.admin import stat
from tests.integration.kvstore.api.raw import (
    DATA,
    KEY,
    Raw,
    chunk,
    commit,
    error_of,
    read_frame,
    reserve,
)
from tests.support.stores import (
    RunningStore,
)

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
    read_frame(wait=Duration(seconds=-1)),
    read_frame(wait=Duration(seconds=10**9)),
]


async def test_bad_reads(raw: Raw, store: RunningStore) -> None:
    stream = await raw.open("Get")
    await stream.read()
    for frame in BAD_READS:
        stream.send(frame)
        assert (await error_of(stream)).reason is Reason.INVALID_FIELD, frame
        assert stat(store.store).waiters == 0
        stream.send(read_frame())
        assert (await stream.read()).missing.timed_out == [0]


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
