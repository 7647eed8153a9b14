"""What stores tell each other about NIXL: refused where it is damaged, foreign or impossible."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from xxhash import xxh3_128_digest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import GetStream, open_get, open_session
from baton.rpc.channel.channel import Channel
from tests.integration.kvstore.peers.side import (
    COUNT,
    EVERYTHING,
    SIZE,
    Side,
    fetch,
)
from tests.support.clock import within
from tests.support.stores import (
    LAYOUT,
    RunningStore,
    get,
    keys_of,
    needs_nixl,
    put,
)

pytestmark = needs_nixl


@asynccontextmanager
async def stream_to(
    store: RunningStore, client_id: str, incarnation: str
) -> AsyncIterator[GetStream]:
    async with AsyncExitStack() as stack:
        channel = Channel(store.address)
        stack.push_async_callback(channel.close)
        session = await open_session(channel, client_id, incarnation, 3)
        stream, _ = await open_get(channel, pb.Open(session_id=session.session_id), stack, 3)
        yield stream


def offer(endpoint: pb.NixlEndpoint) -> pb.GetRequest:
    return pb.GetRequest(nixl_offer=pb.NixlOffer(endpoint=endpoint))


async def test_damaged_or_foreign_metadata_is_refused_and_harms_nobody(a: Side, b: Side) -> None:
    await put(a.client, keys_of(COUNT), SIZE)
    # On a machine that stands still for seconds NIXL gives way to gRPC, and comes back.
    await put(a.client, keys_of(COUNT, "try"), SIZE)
    for key in keys_of(COUNT, "try"):
        await get(b.client, [key], SIZE, 5, [a.store.source])
        if came := b.came("nixl"):
            break
    assert came == SIZE
    good = b.store.nixl.endpoint.message()
    name, incarnation = good.agent.split("/")

    def changed(**fields) -> pb.NixlEndpoint:
        message = pb.NixlEndpoint()
        message.CopyFrom(good)
        for field, value in fields.items():
            setattr(message, field, value)
        return message

    def sealed(metadata: bytes, **fields) -> pb.NixlEndpoint:
        digest = xxh3_128_digest(metadata)
        return changed(metadata=metadata, metadata_digest=digest, **fields)

    async with stream_to(a.store, name, incarnation) as stream:
        for endpoint in (
            changed(metadata=good.metadata[:-10]),
            changed(metadata=b""),
            sealed(b""),
            sealed(b"junk" * 100),
            sealed(good.metadata.replace(b"b/", b"c/")),
            changed(agent="c/1"),
            changed(size_bytes=0),
            changed(address=(1 << 64) - 1),
        ):
            stream.send(offer(endpoint))
            async with within(5):
                answer = await stream.read()
            assert answer.nixl_answer.agent == ""
            assert answer.nixl_answer.refusal.message
    async with stream_to(a.store, "thief", "1") as stream:
        stream.send(offer(good))  # somebody else's memory
        async with within(5):
            assert (await stream.read()).nixl_answer.agent == ""
    # The one whose name was used is still known, and reached.
    assert await fetch(b, [a.store.source]) == EVERYTHING
    assert b.came("nixl") == (1 + COUNT) * SIZE
    assert b.came("grpc") == 0


async def test_metadata_that_nixl_cannot_load_is_refused_and_pushes_need_an_acceptance(
    a: Side,
) -> None:
    await put(a.client, keys_of(1), SIZE)
    head = b"nixlSerDes|Agent" + (3).to_bytes(8, "little") + b"x/1|Conns"
    endpoint = pb.NixlEndpoint(
        agent="x/1",
        metadata=head,
        metadata_digest=xxh3_128_digest(head),
        address=1 << 30,
        size_bytes=1 << 20,
    )
    request = pb.Read(correlation_id=1, layout_id=LAYOUT, keys=b"".join(keys_of(1)))
    async with stream_to(a.store, "x", "1") as stream, within(10):
        stream.send(offer(endpoint))
        assert (await stream.read()).nixl_answer.refusal.message
        stream.send(pb.GetRequest(read=request))
        ready = (await stream.read()).ready
        (lease,) = ready.lease_ids
        assert ready.done
        for push in (
            pb.Push(push_id=1, lease_ids=[lease], offsets_bytes=[0]),  # it was refused
            pb.Push(push_id=2, lease_ids=[lease], offsets_bytes=[1 << 40]),
            pb.Push(push_id=3, lease_ids=[lease], offsets_bytes=[-1]),
            pb.Push(push_id=4, lease_ids=[lease]),
            pb.Push(push_id=5, lease_ids=[lease + 1], offsets_bytes=[0]),
            pb.Push(lease_ids=[lease], offsets_bytes=[0]),
        ):
            stream.send(pb.GetRequest(push=push))
            answer = await stream.read()
            assert answer.WhichOneof("frame") in ("error", "push_ended"), push
        stream.send(pb.GetRequest(abandon_pushes=pb.AbandonPushes(push_ids=[7])))
        assert (await stream.read()).push_ended.push_id == 7
    assert a.store.pushes.live == 0
