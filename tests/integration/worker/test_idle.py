"""KV of idle conversations leaves the engine and comes back, whole workers and stores."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from baton.internal.v1 import kvevents_pb2, kvevents_pb2_grpc
from baton.internal.v1.worker_pb2 import Generate, StreamFinished
from baton.kv.client.client import KvStoreClient
from baton.kv.events.replica import BlockReplica
from baton.rpc.channels import open_channel
from tests.integration.worker.conftest import ALONE, MIB, SIM, at_baseline, local_tokens
from tests.support.clock import DEADLINE_SECONDS
from tests.support.stores import keys_of
from tests.support.wait import eventually

PROMPT = list(range(100, 333))
IDLE = "engine.kv_idle_seconds"
GET_BYTES = "baton_worker_kv_get_bytes_total"
LEFT = "baton_worker_kv_blocks_idle_total"


async def held(service) -> int:
    """Blocks that the worker says its engine has."""
    mirror = BlockReplica()
    async with open_channel(service.address) as channel:
        call = kvevents_pb2_grpc.KvEventServiceStub(channel).Watch(
            kvevents_pb2.WatchRequest(), timeout=DEADLINE_SECONDS
        )
        try:
            message = await call.read()
            while message is not None:
                mirror.apply(message)
                if message.HasField("snapshot") and message.snapshot.last:
                    break
                message = await call.read()
        finally:
            call.cancel()
    assert {space.tier for space in mirror.held} <= {kvevents_pb2.TIER_ENGINE}
    return sum(len(keys) for keys in mirror.held.values())


async def turn(run, stream_id: int, prompt: list[int]) -> tuple[list[int], StreamFinished]:
    await run.start(stream_id=stream_id, prompt_token_ids=prompt, generate=Generate())
    await run.ended(stream_id)
    return run.tokens[stream_id][0], run.ends[stream_id]


async def emptied(service) -> None:
    async def nothing_held() -> bool:
        return await held(service) == 0

    await eventually(nothing_held, 10)


async def test_an_idle_conversation_leaves_the_engine_and_comes_back(start_service, open_run):
    await start_service("kvstore", SIM, instance_id="store")
    leaving, staying = await asyncio.gather(
        start_service("decode", SIM | {IDLE: 0.5}), start_service("decode", SIM | {IDLE: 0})
    )
    outputs, cached = [], []
    for worker, first_seed in ((leaving, 0), (staying, 1000)):
        # Other tokens for the second worker, or it would find the first one's KV in the store.
        prompt = [token + first_seed for token in PROMPT]
        run = await open_run(worker.address)
        answer, _ = await turn(run, 1, prompt)
        full = (len(prompt) + len(answer) - 1) // 16
        if worker is leaving:
            await emptied(worker)
        else:
            await asyncio.sleep(1.0)
            assert await held(worker) == full
        assert worker.sample(GET_BYTES) == 0
        assert worker.sample(LEFT) == (full if worker is leaving else 0)
        second = [*prompt, *answer, 7, 8, 9]
        output, end = await turn(run, 2, second)
        fetched = worker.sample(GET_BYTES)
        assert fetched == (full * 16 * 16 if worker is leaving else 0)
        assert output == local_tokens(prompt_token_ids=second)
        outputs.append(output)
        cached.append(end.usage.cached_tokens)
        await at_baseline(run)
    assert cached[0] == cached[1] == full * 16
    await emptied(leaving)  # again, what came back included


async def test_what_is_used_stays(start_service, open_run):
    await start_service("kvstore", SIM, instance_id="store")
    worker = await start_service("decode", SIM | {IDLE: 1.2})
    run = await open_run(worker.address)
    for number in range(6):
        await turn(run, number, PROMPT)
        await asyncio.sleep(0.3)
        # The answer's own block is not asked for again, and may leave.
        assert await held(worker) >= len(PROMPT) // 16
    assert worker.sample(GET_BYTES) == 0
    await emptied(worker)


async def occupy(store, stack: AsyncExitStack) -> None:
    """Reserve all that a store lets be reserved, until the stack is left."""
    client = await stack.enter_async_context(KvStoreClient(lambda: store.address, "other", "1"))
    await client.wait_connected(5)
    for size in (64 * 1024, 4096, 256):
        number = 0
        while True:
            keys = keys_of(64, f"{size}-{number}")
            reservation = await client.reserve(keys, bytes(16), size)
            stack.push_async_callback(reservation.aclose)
            number += 1
            if len(reservation.slots) < len(keys):
                break


@pytest.mark.parametrize("store", ["away", "full"])
async def test_what_the_store_does_not_hold_stays(start_service, open_run, store: str):
    settings = (SIM if store == "full" else ALONE) | {IDLE: 0.5}
    async with AsyncExitStack() as stack:
        if store == "full":
            settings |= {"store.arena_bytes": MIB, "store.reservation_seconds": 60}
            await occupy(await start_service("kvstore", settings, instance_id="store"), stack)
        await _stays(start_service, open_run, settings)


async def _stays(start_service, open_run, settings) -> None:
    worker = await start_service("decode", settings)
    run = await open_run(worker.address)
    prompts = [[(13 * i + 1009 * n) % 30_000 for i in range(2_000)] for n in range(3)]
    for number, prompt in enumerate(prompts):
        await turn(run, number, prompt)
    await asyncio.sleep(1.2)
    computed = (await at_baseline(run)).computed_tokens
    for number, prompt in enumerate(prompts):
        output, end = await turn(run, 10 + number, prompt)
        assert end.usage.cached_tokens == len(prompt) - 1
        assert output == local_tokens(prompt_token_ids=prompt)
    assert (await at_baseline(run)).computed_tokens - computed == 3 * 8
