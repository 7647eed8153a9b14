"""Clients that vanish at any moment, also while the store writes to them: nothing stays behind."""

import asyncio
import random

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.kv.keys import pack
from baton.rpc.channels import open_channel
from baton.rpc.protocol import VERSION
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import (
    LAYOUT,
    MIB,
    assert_baseline,
    connected,
    keys_of,
    put,
    wait_memory,
)

SIZE = 128 * 1024
KEYS = keys_of(16)
ROUNDS = 16


async def _vanish(address: str, method: str, frames: list, answers: int, pause: float) -> None:
    """Open a stream, say something, read some answers, and go without a word."""
    channel = open_channel(address)
    stub = KvStoreServiceStub(channel)
    session = await stub.Attach(
        pb.AttachRequest(
            client_id="raw",
            incarnation="1",
            protocol_version=VERSION,
        ),
        timeout=DEADLINE_SECONDS,
    )
    call = getattr(stub, method)(timeout=DEADLINE_SECONDS)
    kind = pb.GetRequest if method == "Get" else pb.PutRequest
    await call.write(kind(open=pb.Open(session_id=session.session_id)))
    for frame in frames:
        await call.write(frame)
    for _ in range(answers):
        await call.read()
    await asyncio.sleep(pause)
    await channel.close(None)


async def test_readers_that_vanish_amid_a_write_leave_nothing(start_service) -> None:
    store = await start_service("kvstore", {"store.arena_bytes": 16 * MIB})
    draw = random.Random(4)
    await wait_memory(store.address, 16 * MIB)
    async with connected(store.address, "grpc") as writer:
        assert await put(writer, KEYS, SIZE) == len(KEYS)
    reads = [
        pb.GetRequest(
            read=pb.Read(correlation_id=n, layout_id=LAYOUT, keys=pack(KEYS), send_bytes=True)
        )
        for n in (1, 2, 3)
    ]
    for _ in range(ROUNDS):
        await asyncio.gather(
            *(
                _vanish(
                    store.address,
                    "Get",
                    reads,
                    draw.randrange(1, 8),
                    draw.choice([0, 0, 0.002, 0.02]),
                )
                for _ in range(4)
            )
        )
        await assert_baseline(store.address)
    calls = 'baton_rpc_calls_active{method="/baton.internal.v1.KvStoreService/Get"}'
    assert (await store.metrics())[calls] == 0


async def test_writers_that_vanish_amid_a_write_leave_nothing(start_service) -> None:
    store = await start_service("kvstore", {"store.arena_bytes": 16 * MIB})
    await wait_memory(store.address, 16 * MIB)
    draw = random.Random(5)
    for turn in range(ROUNDS):
        frames = [
            pb.PutRequest(
                reserve=pb.Reserve(
                    correlation_id=number + 1,
                    layout_id=LAYOUT,
                    keys=pack(keys_of(64, f"{turn}.{number}")),
                    object_bytes=4096,
                )
            )
            for number in range(8)
        ]
        part = pb.WriteChunk(correlation_id=1, indexes=[0], data=b"x" * 4096)
        frames += [pb.PutRequest(write_chunk=part)]
        pause = draw.choice([0, 0, 0.002, 0.02])
        await _vanish(store.address, "Put", frames, draw.randrange(1, 6), pause)
        await assert_baseline(store.address)
    calls = 'baton_rpc_calls_active{method="/baton.internal.v1.KvStoreService/Put"}'
    assert (await store.metrics())[calls] == 0
