"""A worker is told to stop under load: others go on with its streams, and compute next to nothing
again."""

import asyncio
from typing import Any

import pytest

from baton.client import Answer, Delta, FinishReason
from tests.e2e.conftest import OUTPUT_TOKENS as REFERENCE_TOKENS
from tests.e2e.conftest import TORCH
from tests.e2e.faults.test_faults import expected_tokens
from tests.support.clock import Stopwatch
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster

STREAMS = 16
BLOCK = 16
OUTPUT_TOKENS = 40
REQUESTS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.95, "seed": 4711},
    {"temperature": 0.8, "seed": 5, "presence_penalty": 0.4, "frequency_penalty": 0.3},
    {"temperature": 0.8, "seed": 6, "repetition_penalty": 1.2, "min_tokens": 50},
    {"temperature": 0.7, "seed": 7, "n": 2},
    {"temperature": 0.7, "seed": 8, "logprobs": 2},
]


async def handed_over(cluster: LocalCluster) -> float:
    return (await cluster.frontend.metrics())["baton_frontend_streams_handed_over_total"]


async def computed(cluster: LocalCluster) -> float:
    """Tokens through forward passes, of those that have stopped too."""
    every = await asyncio.gather(*(worker.metrics() for worker in cluster.workers))
    name = "baton_worker_computed_tokens"
    return sum(value for one in every for key, value in one.items() if key.startswith(name))


@pytest.mark.parametrize("role", ["decode", "prefill"])
async def test_what_was_computed_is_not_computed_again(
    local_cluster: Any, random_model: Any, role: str
) -> None:
    decode_seconds = 0.05 if role == "decode" else 0.001
    prefill_rate = 100_000 if role == "decode" else 800
    cluster: LocalCluster = await local_cluster(
        own=True,
        prefill=2,
        decode=2,
        settings={
            "engine.sim_prefill_tokens_per_second": prefill_rate,
            "engine.sim_decode_step_seconds": decode_seconds,
            "engine.chunk_tokens": 64,
        },
    )
    expected = expected_tokens(random_model())
    half = asyncio.Semaphore(0)

    async def tokens_of(i: int) -> tuple[int, ...]:
        tokens: list[int] = []
        stream = cluster.client.generate(
            prompt_of(150 + i, i), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=i
        )
        async with stream:
            async for event in stream:
                if isinstance(event, Delta):
                    tokens += event.token_ids
                    if len(tokens) == 20:
                        half.release()
        return tuple(tokens)

    async def stop() -> tuple[float, float]:
        if role == "decode":
            for _ in range(STREAMS):
                await half.acquire()
        else:
            await half.acquire()
        watch = Stopwatch()
        assert (await cluster.load(cluster[f"{role}-0"])).streams > 0
        assert await cluster[f"{role}-0"].stop() == 0
        seconds = watch.seconds
        return seconds, watch.elapsed - seconds

    (seconds, lost), *outputs = await asyncio.gather(stop(), *map(tokens_of, range(STREAMS)))
    assert outputs == expected
    assert seconds < 2.0
    moved = await handed_over(cluster)
    assert moved > 0
    front = await cluster.frontend.metrics()
    assert front.get("baton_frontend_placement_retries_total", 0) == 0
    assert front.get("baton_frontend_worker_connections_lost_total", 0) == 0
    needed = sum(150 + i + OUTPUT_TOKENS - 1 for i in range(STREAMS))
    again = await computed(cluster) - needed
    # Of a prompt the chunk that was being computed, of an output what was in no full block. While
    # the machine keeps the worker from giving its streams up, its engine goes on with them.
    step, rate = (BLOCK, STREAMS / decode_seconds) if role == "decode" else (64, prefill_rate)
    assert again <= moved * step + lost * rate


async def test_streams_of_the_only_worker_wait_for_its_successor(
    local_cluster: Any, random_model: Any
) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True, settings={"engine.sim_decode_step_seconds": 0.02}
    )
    expected = expected_tokens(random_model())[:4]
    begun = asyncio.Semaphore(0)

    async def tokens_of(i: int) -> tuple[int, ...]:
        stream = cluster.client.generate(
            prompt_of(150 + i, i), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=i
        )
        async with stream:
            await anext(stream)
            await anext(stream)
            begun.release()
            return (await stream.answer()).token_ids

    async def restart() -> None:
        for _ in range(4):
            await begun.acquire()
        await cluster.restart("decode-0")

    _, *outputs = await asyncio.gather(restart(), *map(tokens_of, range(4)))
    assert outputs == expected
    assert await handed_over(cluster) > 0


async def test_a_host_that_stops_serves_what_others_go_on_with(
    local_cluster: Any, random_model: Any
) -> None:
    """Its worker and its store are told to stop at the same time."""
    cluster: LocalCluster = await local_cluster(
        own=True,
        decode=1,
        far=True,
        settings={
            "engine.sim_decode_step_seconds": 0.1,
            "engine.sim_prefill_tokens_per_second": 100_000,
            "store.drain_quiet_seconds": 1,
        },
    )
    expected = expected_tokens(random_model())[:8]
    begun = asyncio.Semaphore(0)

    async def tokens_of(i: int) -> tuple[int, ...]:
        stream = cluster.client.generate(
            prompt_of(150 + i, i), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=i
        )
        tokens: list[int] = []
        async with stream:
            async for event in stream:
                if isinstance(event, Delta):
                    tokens += event.token_ids
                    if len(tokens) == 20:
                        begun.release()
        return tuple(tokens)

    async def stop() -> None:
        for _ in range(8):
            await begun.acquire()
        await cluster.start("decode-1", {"kv.store_id": "kvstore-0"})
        codes = await asyncio.gather(cluster["decode-0"].stop(), cluster["kvstore-1"].stop())
        assert codes == [0, 0]

    _, *outputs = await asyncio.gather(stop(), *map(tokens_of, range(8)))
    assert outputs == expected
    assert await handed_over(cluster) == 8
    needed = sum(150 + i + OUTPUT_TOKENS - 1 for i in range(8))
    assert await computed(cluster) - needed <= 8 * BLOCK


async def test_streams_of_any_kind_go_on_alike(local_cluster: Any) -> None:
    cluster: LocalCluster = await local_cluster(own=True, prefill=2, decode=2, **TORCH)

    async def ask(i: int, begun: asyncio.Semaphore | None = None, **more: Any) -> Answer:
        tokens = 0
        stream = cluster.client.generate(
            prompt_of(40 + i, seed=9),
            model=MODEL,
            max_tokens=240,
            ignore_eos=True,
            **{**REQUESTS[i % len(REQUESTS)], **more},
        )
        async with stream:
            async for event in stream:
                before = tokens
                tokens += len(event.token_ids) if isinstance(event, Delta) else 0
                if before < BLOCK <= tokens and begun is not None:
                    begun.release()
            return await stream.answer()

    count = 2 * len(REQUESTS)
    plain = await asyncio.gather(*(ask(i) for i in range(count)))
    texts = [answer.text for answer in plain]
    stops = [{"stop": [text[-40:-36]]} if i % 3 == 0 else {} for i, text in enumerate(texts)]
    expected = await asyncio.gather(*(ask(i, **stops[i]) for i in range(count)))
    begun = asyncio.Semaphore(0)

    async def stop() -> None:
        for _ in range(count // 2):
            await begun.acquire()
        assert await cluster["decode-0"].stop() == 0

    _, *answers = await asyncio.gather(stop(), *(ask(i, begun, **stops[i]) for i in range(count)))
    assert await handed_over(cluster) > 0
    assert [answer.choices for answer in answers] == [answer.choices for answer in expected]
    assert {answer.choices[0].reason for answer in answers} == {
        FinishReason.STOP,
        FinishReason.LENGTH,
    }


async def test_nobody_pairs_with_another_layout_while_workers_are_replaced(
    local_cluster: Any, reference: Any
) -> None:
    """Half of the workers come back with KV of another type, while streams run."""
    cluster: LocalCluster = await local_cluster(own=True, prefill=2, decode=2, **TORCH)
    sampling = {"temperature": 0.9, "seed": 3}
    prompts = [prompt_of(60 + i, seed=12) for i in range(12)]
    expected = [one[0] for one in await reference("llama", prompts, sampling)]

    async def ask(prompt: list[int]) -> Answer:
        stream = cluster.client.generate(
            prompt, model=MODEL, max_tokens=REFERENCE_TOKENS, ignore_eos=True, **sampling
        )
        return await stream.answer()

    answers: list[Answer] = []
    replaced = asyncio.Event()

    async def keep_asking(number: int) -> None:
        while not replaced.is_set():
            answer = await ask(prompts[number])
            assert answer.token_ids == expected[number]

    async def replace() -> None:
        for name in ("decode-0", "prefill-0"):
            assert await cluster[name].stop() == 0
            await cluster.start(name, {"engine.dtype": "float32"})
        replaced.set()

    await asyncio.gather(replace(), *map(keep_asking, range(4)))
    for _ in range(3):
        answers += await asyncio.gather(*map(ask, prompts))
    assert [answer.token_ids for answer in answers] == expected * 3
    pairs = [{step.name: step.instance[-1] for step in answer.steps} for answer in answers]
    assert all(pair["prefill"] == pair["decode"] for pair in pairs)
    # Those that were not replaced have computed all of it; without them the others do.
    assert await cluster["decode-1"].stop() == 0
    alone = await asyncio.gather(*map(ask, prompts))
    assert [answer.token_ids for answer in alone] == expected
    for answer in alone:
        assert {step.instance[-1] for step in answer.steps if step.name != "route"} == {"0"}
