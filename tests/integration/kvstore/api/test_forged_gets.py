"""Ten thousand gets that ask for what is not theirs: not one byte is served."""

import random

import pytest

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.client.client import KvStoreClient
from baton.kv.keys import chain_root, prompt_keys
from baton.rpc.channels import open_channel
from baton.rpc.protocol import VERSION
from services.kvstore.api.admin import stat
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import LAYOUT, RunningStore, connected, put

SIZE = 4096
BLOCKS = 50
ROUNDS = 25
"""Per transport. So 2,500 gets at least of each kind: another salt, another model, a stale place, a
forged id."""
TOKENS = list(range(16 * BLOCKS))


def chain(salt: bytes = b"salt", model: str = "model", layout: bytes = LAYOUT) -> list[bytes]:
    root = chain_root(model, b"w" * 32, layout, b"", salt)
    return list(prompt_keys(root, TOKENS, 16).full)


async def served(client: KvStoreClient, keys: list[bytes], layout: bytes = LAYOUT) -> int:
    """Bytes that a reader takes for right."""
    fetching = client.fetch(keys, layout, SIZE)
    try:
        async for batch in fetching:
            for fetched in batch:
                fetched.copy_to(memoryview(bytearray(SIZE)))
    finally:
        await fetching.aclose()
    return fetching.bytes


@pytest.mark.parametrize("transport", ["shm", "grpc"])
async def test_other_salts_models_layouts_and_forged_ids_get_nothing(
    store: RunningStore, transport: str
) -> None:
    draw = random.Random(transport)
    own = chain()
    async with connected(store.address, transport) as client:
        assert await put(client, own, SIZE) == BLOCKS
        assert await served(client, own) == BLOCKS * SIZE  # the same question by its owner
        for number in range(ROUNDS):
            assert await served(client, chain(salt=draw.randbytes(16))) == 0
            assert await served(client, chain(model=f"model-{number}")) == 0
            other = draw.randbytes(16)
            # Another layout's keys differ, and its own name for the right keys is another object.
            assert await served(client, chain(layout=other), other) == 0
            assert await served(client, own, other) == 0
            forged = []
            for key in own:
                changed = bytearray(key)
                changed[draw.randrange(16)] ^= 1 << draw.randrange(8)
                forged.append(bytes(changed))
            assert await served(client, forged) == 0
            shifted = b"".join(own)[8:-8]
            assert await served(client, [shifted[at : at + 16] for at in range(0, 784, 16)]) == 0
            assert not any(await client.lookup(forged, LAYOUT))
    assert stat(store.store).bad_objects == 0


async def test_a_stale_place_gets_nothing(store: RunningStore) -> None:
    # A reader that kept what it was told, while the places went to others.
    async with connected(store.address, "shm") as client:
        for turn in range(2 * ROUNDS):
            keys = chain(salt=f"old {turn}".encode())
            assert await put(client, keys, SIZE) == BLOCKS
            fetching = client.fetch(keys, LAYOUT, SIZE)
            batch = await anext(fetching)
            assert len(batch) == BLOCKS
            for slot in store.store.table.slots():
                store.store.table.drop([slot])
            others = chain(salt=f"new {turn}".encode())
            assert await put(client, others, SIZE, first=1000) == BLOCKS
            for fetched in batch:
                assert not fetched.copy_to(memoryview(bytearray(SIZE)))
            await fetching.aclose()
            assert fetching.bytes == 0
            for slot in store.store.table.slots():
                store.store.table.drop([slot])


async def test_leases_that_are_not_ones_own_get_nothing(store: RunningStore) -> None:
    draw = random.Random(7)
    async with connected(store.address, "grpc") as client:
        keys = chain()
        await put(client, keys, SIZE)
        channel = open_channel(store.address)
        try:
            stub = KvStoreServiceStub(channel)
            session = await stub.Attach(
                pb.AttachRequest(
                    client_id="thief",
                    incarnation="1",
                    protocol_version=VERSION,
                ),
                timeout=DEADLINE_SECONDS,
            )
            sent = 2000

            async def frames():
                yield pb.GetRequest(open=pb.Open(session_id=session.session_id))
                for _ in range(sent):
                    lease = draw.choice([draw.randrange(-5, 100), draw.randrange(1 << 62)])
                    yield pb.GetRequest(fetch=pb.Fetch(lease_ids=[lease]))

            call = stub.Get(frames(), timeout=30)
            fetching = client.fetch(keys, LAYOUT, SIZE)
            await anext(fetching)
            assert (await call.read()).HasField("opened")
            for _ in range(sent):
                assert (await call.read()).HasField("error")
            call.cancel()
            await fetching.aclose()
        finally:
            await channel.close(None)
