"""Streams are given up at any time, under a cache that is too small, and nothing is left behind."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.vllm.conftest import VLLM, prompts
from tests.support.clock import within
from tests.support.engine.model import MODEL

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-clusters"), pytest.mark.timeout(900)]

AT_ONCE = 24
SMALL = {
    # 48 pages: two or three of the sequences below, which so preempt each other.
    "engine.kv_bytes": 48 * 32 * 2 * 4 * 2 * 64 * 4,
    "engine.max_running": 8,
}


@pytest.mark.parametrize("aborts", [60, pytest.param(1000, marks=pytest.mark.soak)])
async def test_aborts_at_any_time_leave_nothing_behind(
    local_cluster: Any, llama: Path, aborts: int
) -> None:
    shape = VLLM | {"settings": VLLM["settings"] | SMALL}
    cluster = await local_cluster(**shape, model=llama)
    whole = [prompt[:300] for prompt in prompts(4, longest=300)]
    options = {"model": MODEL, "max_tokens": 300, "ignore_eos": True, "temperature": 0}

    async def answer(prompt: list[int]) -> tuple[int, ...]:
        return (await cluster.client.generate(prompt, **options).answer()).token_ids

    expected = [await answer(prompt) for prompt in whole]
    draw = random.Random(3)
    places = asyncio.Semaphore(AT_ONCE)

    async def abort(seconds: float, prompt: list[int]) -> None:
        async with places:
            stream = cluster.client.generate(prompt, **options)
            try:
                async with within(seconds):
                    async for _ in stream:
                        pass
            except TimeoutError:
                pass
            finally:
                stream.close()

    asked = prompts(40, longest=500, seed=13)
    rounds = (abort(draw.uniform(0, 0.8), draw.choice(asked)) for _ in range(aborts))
    outputs, _ = await asyncio.gather(asyncio.gather(*map(answer, whole)), asyncio.gather(*rounds))
    assert outputs == expected
    await cluster.at_baseline()
    assert [await answer(prompt) for prompt in whole] == expected
