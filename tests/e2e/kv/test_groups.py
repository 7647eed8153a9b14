"""Models with windows, chunks and states: the tokens of one engine, whatever moves or stops."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.client import Delta
from baton.engine.base import Engine, SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.e2e.kv.test_reuse import poison
from tests.support.clock import within
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster, Service

TABLES = ["full,window:64", "full,window:40,chunk:48,state", "window:33", "state"]
OUTPUT_TOKENS = 40
STREAMS = 8


class Reference:
    """One engine in this process."""

    def __init__(self, model: Path, table: str) -> None:
        self._engine: Engine = create_engine(
            EngineSettings(kind="sim", model=model, sim_time_scale=0, sim_groups=table)
        )

    def tokens(self, prompt: Sequence[int], seed: int = 0) -> tuple[int, ...]:
        sampling = SamplingParams(seed=seed, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
        asked = SequenceRequest(1, b"root", prompt, sampling)
        [output] = run_local(self._engine, [asked])
        self._engine.evict_blocks()
        return tuple(output.tokens[0])


def settings_of(table: str, **changes: Any) -> dict[str, Any]:
    return {"engine.sim_groups": table, "engine.chunk_tokens": 64, **changes}


async def ask(cluster: LocalCluster, prompt: Sequence[int], seed: int = 0) -> tuple[Any, ...]:
    """Return the tokens of an answer, and how many of its prompt's were cached."""
    answer = await cluster.client.generate(
        prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=seed
    ).answer()
    return answer.token_ids, answer.usage.cached_tokens


@pytest.mark.parametrize("table", TABLES)
async def test_shared_prefixes_are_found_and_change_no_token(
    local_cluster: Any, random_model: Any, table: str
) -> None:
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(
        own=True, prefill=1, decode=1, settings=settings_of(table)
    )
    for shared in (160, 320, 480):
        prefix = prompt_of(shared, shared)
        for number in range(3):
            prompt = [*prefix, *prompt_of(21 + 9 * number, 1000 + number)]
            expected = reference.tokens(prompt)
            await cluster.empty_engines()
            tokens, cached = await ask(cluster, prompt)
            assert tokens == expected
            if number == 2 and table.startswith("full"):
                # The second one published the cut where it left the first one's prefix.
                assert cached == shared
            tokens, cached = await ask(cluster, prompt)  # the same once more, from its end
            assert tokens == expected
            assert cached >= (len(prompt) - 1) // 16 * 16 - 16
        # The next turn of the conversation goes on from the end of the answer.
        await cluster.empty_engines()
        turn = [*prompt, *tokens, *prompt_of(30, 7)]
        again, cached = await ask(cluster, turn)
        assert again == reference.tokens(turn)
        assert cached == (len(prompt) + OUTPUT_TOKENS - 1) // 16 * 16
    await cluster.at_baseline()


async def test_a_poisoned_store_costs_time_and_no_token(
    local_cluster: Any, random_model: Any
) -> None:
    table = TABLES[1]
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(own=True, settings=settings_of(table))
    prompt = prompt_of(645)
    expected = reference.tokens(prompt)
    assert (await ask(cluster, prompt))[0] == expected
    await cluster.empty_engines()
    assert await ask(cluster, prompt) == (expected, 640)
    await cluster.empty_engines()
    assert poison(cluster.directory_of("kvstore-0")) > 40
    tokens, cached = await ask(cluster, prompt)
    assert tokens == expected
    assert cached < 640
    assert (await cluster.stat()).bad_objects > 0
    counters = [await worker.metrics() for worker in cluster.workers]
    short = "baton_worker_kv_cuts_short_total"
    assert sum(n for one in counters for key, n in one.items() if key.startswith(short)) > 0
    await cluster.at_baseline()


async def streamed(
    cluster: LocalCluster, i: int, reached: asyncio.Semaphore, after: int = OUTPUT_TOKENS // 2
) -> tuple[int, ...]:
    tokens: list[int] = []
    stream = cluster.client.generate(
        prompt_of(150 + i, i), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=i
    )
    async with stream:
        async for event in stream:
            if isinstance(event, Delta):
                tokens += event.token_ids
                if len(tokens) == after:
                    reached.release()
    return tuple(tokens)


@pytest.mark.parametrize("table", TABLES[:2])
@pytest.mark.parametrize("what", ["stop decode-0", "kill decode-0", "kill kvstore-0"])
async def test_streams_go_on_when_a_process_ends(
    local_cluster: Any, random_model: Any, table: str, what: str
) -> None:
    reference = Reference(random_model(), table)
    expected = [reference.tokens(prompt_of(150 + i, i), i) for i in range(STREAMS)]
    how, name = what.split()
    cluster: LocalCluster = await local_cluster(
        own=True,
        prefill=1,
        decode=2,
        processes=(name,) if how == "kill" else (),
        settings=settings_of(table, **{"engine.sim_decode_step_seconds": 0.03}),
    )
    half = asyncio.Semaphore(0)

    async def end() -> None:
        for _ in range(STREAMS // 2):
            await half.acquire()
        process: Any = cluster[name]
        if how == "stop":
            assert await process.stop() == 0
        else:
            process.kill()

    before = await cluster.computed_tokens()
    *outputs, _ = await asyncio.gather(*(streamed(cluster, i, half) for i in range(STREAMS)), end())
    assert outputs == expected
    if what == "stop decode-0":
        front = await cluster.frontend.metrics()
        moved = front["baton_frontend_streams_handed_over_total"]
        assert moved > 0
        # Each stream goes on from its last full block; so does each one after its prefill.
        alive = [cluster.prefills[0], cluster["decode-1"]]
        loads = [await cluster.load(worker) for worker in alive]
        once = sum(150 + i for i in range(STREAMS)) + STREAMS * OUTPUT_TOKENS
        again = 17 * (STREAMS + moved)
        assert sum(load.computed_tokens for load in loads) - before <= once + again


async def test_prompts_go_on_when_their_prefill_worker_is_killed(
    local_cluster: Any, random_model: Any
) -> None:
    table = TABLES[1]
    reference = Reference(random_model(), table)
    expected = [reference.tokens(prompt_of(150 + i, i), i) for i in range(STREAMS)]
    slow = {"engine.sim_prefill_tokens_per_second": 500.0}
    cluster: LocalCluster = await local_cluster(
        own=True,
        prefill=2,
        decode=1,
        processes=("prefill-0",),
        settings=settings_of(table, **slow),
    )
    first = asyncio.Semaphore(0)

    async def end() -> None:
        await first.acquire()
        process: Any = cluster["prefill-0"]
        process.kill()

    streams = [streamed(cluster, i, first, after=1) for i in range(STREAMS)]
    *outputs, _ = await asyncio.gather(*streams, end())
    assert outputs == expected
    assert (await cluster.load(cluster["prefill-1"])).computed_tokens > STREAMS // 2 * 150


async def test_a_store_that_is_too_small_still_serves_cuts(
    local_cluster: Any, random_model: Any
) -> None:
    table = TABLES[1]
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(
        own=True, settings=settings_of(table, **{"store.arena_bytes": 2 * 1024 * 1024})
    )
    prompts = [prompt_of(330 + number, number) for number in range(16)]
    expected = [reference.tokens(prompt) for prompt in prompts]
    for _ in range(2):
        answers = [(await ask(cluster, prompt))[0] for prompt in prompts]
        assert answers == expected
    assert (await cluster.stat()).evictions > 50
    await cluster.empty_engines()
    found = 0
    for prompt, tokens in reversed(list(zip(prompts, expected, strict=True))):
        again, cached = await ask(cluster, prompt)
        assert again == tokens
        found += cached >= 320
    assert found >= 2
    await cluster.at_baseline()


async def left(worker: Service) -> float:
    """Return the number of blocks that left a worker's engine for being idle."""
    counters = await worker.metrics()
    name = "baton_worker_kv_blocks_idle_total"
    return sum(counters[each] for each in counters if each.startswith(name))


async def test_idle_kv_leaves_the_engine_and_its_cut_is_found_again(
    local_cluster: Any, random_model: Any
) -> None:
    table = TABLES[1]
    reference = Reference(random_model(), table)
    cluster: LocalCluster = await local_cluster(
        own=True, settings=settings_of(table, **{"engine.kv_idle_seconds": 0.5})
    )
    prompt = prompt_of(325)
    tokens, _ = await ask(cluster, prompt)

    async with within(60):
        for worker, blocks in (
            (cluster.prefills[0], len(prompt) // 16),
            (cluster.decodes[0], (len(prompt) + OUTPUT_TOKENS - 1) // 16),
        ):
            while await left(worker) < blocks:
                await asyncio.sleep(0.05)
    turn = [*prompt, *tokens, *prompt_of(30, 7)]
    assert await ask(cluster, turn) == (
        reference.tokens(turn),
        (325 + OUTPUT_TOKENS - 1) // 16 * 16,
    )
