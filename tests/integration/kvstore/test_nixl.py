"""Stores that write into each other's arenas: what goes wrong costs time, and nothing else."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from xxhash import xxh3_128_digest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.client.attach import GetStream, open_get, open_session
from baton.kv.client.client import KvStoreClient
from baton.rpc.channels import open_channel
from services.kvstore.api.admin import stat
from tests.integration.kvstore.conftest import (
    LAYOUT,
    MIB,
    RunningStore,
    block,
    connected,
    eventually,
    get,
    keys_of,
    needs_nixl,
    put,
    running_store,
    source,
)

pytestmark = needs_nixl
SIZE = 512 * 1024
COUNT = 8
IN_FLIGHT = 4
"""Objects that a store of 16 MiB has on their way at a time."""
EVERYTHING = ({index: block(index, SIZE) for index in range(COUNT)}, set())


@dataclass
class Side:
    """A store and a client of it."""

    store: RunningStore
    client: KvStoreClient

    def came(self, transport: str) -> int:
        return self.store.store.moved_bytes["peer", transport]


@asynccontextmanager
async def side(
    directory: Path, name: str, transport: str = "nixl", **options
) -> AsyncIterator[Side]:
    (directory / name).mkdir(exist_ok=True)
    async with (
        running_store(
            directory / name, store_id=name, peer_transport=transport, **options
        ) as store,
        connected(store.address, "shm") as client,
    ):
        yield Side(store, client)
        await store.quiet(10)


@pytest.fixture
async def a(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path, "a") as one:
        yield one


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Side]:
    async with side(tmp_path, "b", push_seconds=0.4) as one:
        yield one


async def fetch(b: Side, sources: list, wait: float = 20, salt: str = ""):
    async with asyncio.timeout(30):
        return await get(b.client, keys_of(COUNT, salt), SIZE, wait, sources)


async def pushing(b: Side) -> None:
    """Wait until a push is under way, however short."""
    async with asyncio.timeout(15):
        while not b.store.nixl.expected:
            await asyncio.sleep(0)


class Gate:
    """Keeps a store's NIXL thread from doing anything, as if its network hung."""

    def __init__(self, store: RunningStore) -> None:
        assert store.nixl is not None
        self._open = threading.Event()
        store.nixl._order(lambda _agent: self._open.wait(30) and None)

    def open(self) -> None:
        self._open.set()


async def test_a_push_that_hangs_is_replaced_by_grpc_and_its_slots_wait_for_its_end(
    a: Side, b: Side
) -> None:
    await put(a.client, keys_of(1, "warm"), SIZE)
    await get(b.client, keys_of(1, "warm"), SIZE, 5, [a.store.source])
    warm = b.came("nixl")
    assert warm == SIZE
    await put(a.client, keys_of(COUNT), SIZE)
    gate = Gate(a.store)
    try:
        assert await fetch(b, [a.store.source]) == EVERYTHING
        assert b.came("grpc") == COUNT * SIZE
        assert b.store.peers.quarantined == IN_FLIGHT
        assert stat(b.store.store).quarantined == IN_FLIGHT
        assert b.store.store.peer_failures["nixl"] == 1
        assert b.came("nixl") == warm
    finally:
        gate.open()
    await b.store.quiet(5)
    # Later it is tried again, and used.
    loop = asyncio.get_running_loop()
    end = loop.time() + 15
    number = 0
    while b.came("nixl") == warm:
        assert loop.time() < end
        number += 1
        await put(a.client, keys_of(1, f"again{number}"), SIZE)
        found, _ = await get(b.client, keys_of(1, f"again{number}"), SIZE, 5, [a.store.source])
        assert found == {0: block(0, SIZE)}
        await asyncio.sleep(0.1)


async def test_slots_of_a_hanging_push_outlive_the_stream_that_it_was_asked_for_on(
    a: Side, b: Side
) -> None:
    await put(a.client, keys_of(1, "warm"), SIZE)
    await get(b.client, keys_of(1, "warm"), SIZE, 5, [a.store.source])
    await put(a.client, keys_of(COUNT), SIZE)
    gate = Gate(a.store)
    try:
        getting = asyncio.create_task(fetch(b, [a.store.source]))
        await pushing(b)
        (link,) = b.store.peers._links.values()
        await eventually(lambda: a.store.pushes.live)
        await link.stream.aclose()  # as if the connection broke
        assert await getting == EVERYTHING
        assert b.store.peers.quarantined == IN_FLIGHT
        # The new stream has asked after the push, and A has not said that it is over.
        await asyncio.sleep(0.3)
        assert b.store.peers.quarantined == IN_FLIGHT
        assert a.store.pushes.live == 1
    finally:
        gate.open()
    await b.store.quiet(5)
    assert a.store.pushes.live == 0


@pytest.mark.parametrize("without", ["a", "b"])
async def test_a_peer_without_nixl_is_asked_over_grpc(tmp_path: Path, without: str) -> None:
    async with (
        side(tmp_path, "a", "grpc" if without == "a" else "nixl") as a,
        side(tmp_path, "b", "grpc" if without == "b" else "nixl") as b,
    ):
        await put(a.client, keys_of(COUNT), SIZE)
        assert await fetch(b, [a.store.source]) == EVERYTHING
        assert (b.came("nixl"), b.came("grpc")) == (0, COUNT * SIZE)


async def test_a_machine_without_the_library_uses_grpc(
    a: Side, b: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "services.kvstore.peers.transports.nixl.agent.LIBRARIES", ("no_such_library",)
    )
    await put(a.client, keys_of(COUNT), SIZE)
    assert await fetch(b, [a.store.source]) == EVERYTHING
    assert (b.came("nixl"), b.came("grpc")) == (0, COUNT * SIZE)
    assert "pip install" in b.store.nixl.failure


@asynccontextmanager
async def stream_to(
    store: RunningStore, client_id: str, incarnation: str
) -> AsyncIterator[GetStream]:
    async with AsyncExitStack() as stack:
        channel = open_channel(store.address)
        stack.push_async_callback(channel.close, None)
        session = await open_session(channel, client_id, incarnation)
        stream, _ = await open_get(channel, pb.Open(session_id=session.session_id), stack)
        yield stream


def offer(endpoint: pb.NixlEndpoint) -> pb.GetRequest:
    return pb.GetRequest(nixl_offer=pb.NixlOffer(endpoint=endpoint))


async def test_damaged_or_foreign_metadata_is_refused_and_harms_nobody(a: Side, b: Side) -> None:
    await put(a.client, keys_of(COUNT), SIZE)
    await get(b.client, keys_of(1), SIZE, 5, [a.store.source])
    assert b.came("nixl") == SIZE
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
            async with asyncio.timeout(5):
                answer = await stream.read()
            assert answer.nixl_answer.agent == ""
            assert answer.nixl_answer.refusal.message
    async with stream_to(a.store, "thief", "1") as stream:
        stream.send(offer(good))  # somebody else's memory
        async with asyncio.timeout(5):
            assert (await stream.read()).nixl_answer.agent == ""
    # The one whose name was used is still known, and reached.
    assert await fetch(b, [a.store.source]) == EVERYTHING
    assert b.came("nixl") == COUNT * SIZE
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
    async with stream_to(a.store, "x", "1") as stream, asyncio.timeout(10):
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


@pytest.mark.parametrize("delay_ms", [0, 2, 8])
async def test_a_peer_killed_amid_pushes_is_replaced_and_leaves_nothing(
    b: Side, spawn_store, tmp_path: Path, delay_ms: float
) -> None:
    a = await spawn_store("a", "nixl")
    async with (
        connected(a.address, "shm") as first,
        side(tmp_path, "c") as c,
    ):
        await put(first, keys_of(COUNT), SIZE)
        getting = asyncio.create_task(fetch(b, [source(a), c.store.source]))
        await pushing(b)
        await asyncio.sleep(delay_ms / 1000)
        a.kill()
        await put(c.client, keys_of(COUNT), SIZE)
        assert await getting == EVERYTHING
        await b.store.quiet(10)
        assert b.store.peers.quarantined == 0


async def test_a_peer_that_stops_amid_pushes_is_replaced_and_ends_them_when_it_goes_on(
    b: Side, spawn_store, tmp_path: Path
) -> None:
    a = await spawn_store("a", "nixl")
    async with (
        connected(a.address, "shm") as first,
        side(tmp_path, "c") as c,
    ):
        await put(first, keys_of(COUNT), SIZE)
        await put(c.client, keys_of(COUNT), SIZE)
        # Known to each other, so that the next is written at once.
        await put(first, keys_of(1, "warm"), SIZE)
        await get(b.client, keys_of(1, "warm"), SIZE, 5, [source(a)])
        getting = asyncio.create_task(fetch(b, [source(a)]))
        await pushing(b)
        a.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(1)  # what is under way is late by now
            other = await fetch(b, [source(a), c.store.source])
            assert other == EVERYTHING
            assert await getting == EVERYTHING  # the first wait is fulfilled too
            held = b.store.peers.quarantined
            await asyncio.sleep(0.5)
            assert b.store.peers.quarantined == held  # no proof, no release
        finally:
            a.signal(signal.SIGCONT)
        await b.store.quiet(15)
        assert b.store.peers.quarantined == 0
        assert await get(b.client, keys_of(COUNT), SIZE) == EVERYTHING


async def test_a_peer_that_restarts_under_its_id_and_address_is_another_agent(
    b: Side, spawn_store
) -> None:
    a = await spawn_store("a", "nixl")
    port = int(a.address.rpartition(":")[2])
    async with connected(a.address, "shm") as first:
        await put(first, keys_of(COUNT), SIZE)
        await get(b.client, keys_of(1), SIZE, 10, [source(a)])
        before = b.came("nixl")
        assert before == SIZE
        getting = asyncio.create_task(fetch(b, [source(a)]))
        await pushing(b)
        a.kill()
    a = await spawn_store("a", "nixl", port)
    async with connected(a.address, "shm") as second:
        await put(second, keys_of(COUNT), SIZE)
        assert await getting == EVERYTHING
        await put(second, keys_of(COUNT, "more"), SIZE)
        assert await fetch(b, [source(a)], salt="more") == EVERYTHING
    await b.store.quiet(10)
    assert b.came("nixl") + b.came("grpc") >= 2 * COUNT * SIZE - MIB
    assert b.came("nixl") > before
