"""Models with sliding windows in torch: the tokens of one engine, whatever is shared or stops."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.client import Delta
from baton.engine.base import Engine, SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.support.engine.model import MODEL, prompt_of
from tests.support.services.cluster import LocalCluster

WINDOW = 64
BEGINNINGS = (160, 320, 480)
OUTPUT_TOKENS = 40
SETTINGS = {"engine.dtype": "float64", "engine.chunk_tokens": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers, of which one has the window."""
    return write_random_checkpoint(tmp_path_factory.mktemp("model"), "qwen3", 5, window=WINDOW)


@pytest.fixture(scope="module")
def alone(model: Path) -> Any:
    """The greedy tokens of one engine that has nothing cached."""
    engine: Engine = create_engine(EngineSettings(model=model, dtype="float64", threads=1))
    [_, window] = engine.info.layout.groups
    assert window.span_tokens == WINDOW

    def tokens(prompt: Sequence[int]) -> tuple[int, ...]:
        engine.evict_blocks()
        sampling = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
        [output] = run_local(engine, [SequenceRequest(1, b"root", prompt, sampling)])
        return tuple(output.tokens[0])

    yield tokens
    engine.close_engine()


def prompts_of(beginning: int) -> list[list[int]]:
    """Return prompts with a beginning of so many tokens."""
    shared = prompt_of(beginning, beginning)
    return [[*shared, *prompt_of(21 + 9 * i, 1000 + i)] for i in range(3)]


async def ask(
    cluster: LocalCluster, prompt: Sequence[int], half: asyncio.Semaphore | None = None
) -> tuple[tuple[int, ...], int]:
    """Return the tokens of an answer, and how many of its prompt's were cached."""
    stream = cluster.client.generate(
        prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, temperature=0
    )
    tokens = 0
    async with stream:
        async for event in stream:
            if isinstance(event, Delta):
                tokens += len(event.token_ids)
                if half is not None and tokens == OUTPUT_TOKENS // 2:
                    half.release()
    answer = await stream.answer()
    return answer.token_ids, answer.usage.cached_tokens


async def test_shared_prefixes_are_found_and_change_no_token(
    local_cluster: Any, model: Path, alone: Any
) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True, engine="torch", model=model, settings=SETTINGS
    )
    different = 0
    for beginning in BEGINNINGS:
        for number, prompt in enumerate(prompts_of(beginning)):
            expected = alone(prompt)
            await cluster.empty_engines()
            tokens, cached = await ask(cluster, prompt)
            different += tokens != expected
            if number == 2:  # the second one published the cut where it left the first one
                assert cached == beginning
            tokens, cached = await ask(cluster, prompt)
            different += tokens != expected
            assert cached >= (len(prompt) - 1) // 16 * 16 - 16
    assert different == 0
    await cluster.at_baseline()


async def test_streams_with_shared_prefixes_go_on_when_a_worker_is_killed(
    local_cluster: Any, model: Path, alone: Any
) -> None:
    cluster: LocalCluster = await local_cluster(
        own=True,
        decode=2,
        processes=("decode-0",),
        engine="torch",
        model=model,
        settings=SETTINGS,
    )
    prompts = [prompt for beginning in BEGINNINGS for prompt in prompts_of(beginning)]
    expected = [alone(prompt) for prompt in prompts]
    half = asyncio.Semaphore(0)

    async def kill() -> None:
        for _ in range(len(prompts) // 2):
            await half.acquire()
        process: Any = cluster["decode-0"]
        process.kill()

    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(ask(cluster, prompt, half)) for prompt in prompts]
        tasks.create_task(kill())
    assert [answer.result()[0] for answer in answers] == expected
