"""A frozen store, a throttled worker and a queue are named as causes after their requests ended."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from baton.history.cause import cause_of
from baton.history.kept import kept_of
from baton.history.rule import FACTOR, FIRST_TOKEN_SECONDS
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import RouterServiceStub
from baton.rpc.channels import open_channel
from baton.usage.record import UsageRecord, decode
from tests.support.engine.model import MODEL
from tests.support.processes.freeze import freeze, thaw
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

RATE = 20_000
"""Prompt tokens per second of the engines."""
ENGINE = {
    "engine.sim_prefill_tokens_per_second": RATE,
    "engine.sim_decode_step_seconds": 0.001,
    "history.sample_ratio": 0,
}


async def ask(cluster: LocalCluster, request_id: str, tokens: int, first: int) -> None:
    """Send a prompt that is not cached."""
    prompt = [first, *(number % 100 + 3 for number in range(tokens - 1))]
    stream = cluster.client.generate(
        prompt, model=MODEL, max_tokens=4, ignore_eos=True, request_id=request_id
    )
    async for _ in stream:
        pass


async def explained(cluster: LocalCluster, request_id: str) -> router_pb2.ExplainResponse:
    channel = open_channel(cluster.router.address)
    asked = router_pb2.ExplainRequest(request_id=request_id)
    try:
        return await RouterServiceStub(channel).Explain(asked)
    finally:
        await channel.close(None)


async def slow_from(cluster: LocalCluster, request_id: str) -> float:
    """Return the seconds after which its first token is slow, once it is placed."""

    async def chosen() -> router_pb2.CandidateCosts | None:
        decisions = (await explained(cluster, request_id)).explanations
        return decisions[0].candidates[0] if decisions else None

    costs = await eventually(chosen)
    return FIRST_TOKEN_SECONDS + FACTOR * (costs.transfer_seconds + costs.prefill_seconds)


async def kept(cluster: LocalCluster, request_id: str) -> router_pb2.KeptRequest:
    async def found() -> router_pb2.KeptRequest | None:
        response = await explained(cluster, request_id)
        return response.kept[0] if response.kept else None

    return await eventually(found)


async def slow(cluster: LocalCluster, request_id: str) -> tuple[UsageRecord, str]:
    one = await kept(cluster, request_id)
    assert one.ended.kind == "slow"
    record = decode(one.ended.record)
    return record, cause_of(record, one.ended.error)


def longest_queued(path: Path) -> str:
    """Return the slow request that waited longest in the queue; empty: none did for 2 s."""
    lines = [line for file in path.glob("slow-*") for line in file.read_bytes().splitlines()]
    found = [one.record for one in map(kept_of, lines) if one is not None]
    queued = {one.router_queue_seconds or 0.0: one.request_id for one in found}
    return queued[max(queued)] if queued and max(queued) > 2.0 else ""


async def test_a_queue_is_the_cause(local_cluster: Any, tmp_path: Any) -> None:
    cluster = await local_cluster(own=True, settings={**ENGINE, "history.path": tmp_path})
    await ask(cluster, "usual", 1000, 3)
    # Each takes a fifth of a second.
    await asyncio.gather(*(ask(cluster, f"q{n}", 4000, 10 + n) for n in range(30)))
    longest = await eventually(lambda: longest_queued(tmp_path))
    record, cause = await slow(cluster, longest)
    assert "Slow because of router queue: " in cause, (cause, record)
    assert "in the queue of router-0, class interactive" in cause


async def test_a_frozen_store_is_the_cause(local_cluster: Any, tmp_path: Any) -> None:
    settings = {**ENGINE, "history.path": tmp_path, "liveness.ping_seconds": 60}
    cluster = await local_cluster(own=True, far=True, processes=("kvstore-0",), settings=settings)
    for number in range(4):  # rates are learned
        await ask(cluster, f"usual{number}", 2000, 3 + number)
    freeze(cluster["kvstore-0"].pid)
    try:
        asking = asyncio.create_task(ask(cluster, "slow", 4000, 50))
        await asyncio.sleep(await slow_from(cluster, "slow") + 1)
    finally:
        thaw(cluster["kvstore-0"].pid)
    await asking
    record, cause = await slow(cluster, "slow")
    assert "Slow because of transfer: " in cause, (cause, record)
    assert "from store kvstore-0 at worker prefill-0" in cause


async def test_a_throttled_worker_is_the_cause(local_cluster: Any, tmp_path: Any) -> None:
    slower = {**ENGINE, "engine.sim_prefill_tokens_per_second": RATE / 5}
    settings = {**slower, "history.path": tmp_path, "liveness.ping_seconds": 60}
    cluster = await local_cluster(own=True, far=True, processes=("prefill-0",), settings=settings)
    for number in range(3):
        await ask(cluster, f"usual{number}", 1000, 3 + number)
    request_id, asking = await computing(cluster, 4000)
    freeze(cluster["prefill-0"].pid)
    try:
        await asyncio.sleep(await slow_from(cluster, request_id) + 1)
    finally:
        thaw(cluster["prefill-0"].pid)
    await asking
    record, cause = await slow(cluster, request_id)
    assert "Slow because of prefill: " in cause, (cause, record)
    assert "computing the prompt on worker prefill-0" in cause


async def computing(cluster: LocalCluster, tokens: int) -> tuple[str, asyncio.Task[None]]:
    """Send prompts until one is seen while its first three quarters are computed."""

    async def computed(before: float) -> float:
        samples = await cluster["prefill-0"].metrics()
        return samples[f'baton_worker_computed_tokens_total{{model="{MODEL}"}}'] - before

    number = 0
    while True:
        request_id, before = f"slow{number}", await computed(0)
        asking = asyncio.create_task(ask(cluster, request_id, tokens, 50 + number))
        if await eventually(partial(computed, before)) < 0.75 * tokens:
            return request_id, asking
        await asking
        number += 1
