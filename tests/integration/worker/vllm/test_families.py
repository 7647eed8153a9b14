"""Models with experts, windows or chunks: the tokens of stock vLLM, wherever their KV comes from.

Alone, out of an engine's own prefix cache; over the store; and moved, from one engine to another
in the middle of the output.
"""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.self_check import check_kv_moves
from baton.engine.testing.continued import Begun, continue_output
from baton.engine.testing.random_families import (
    VLLM_FAMILIES,
    VLLM_STATE_FAMILIES,
    VOCAB,
    write_family,
)
from baton.engine.testing.vllm_alone import stock
from baton.engine.vllm.environment import prepare
from baton.kv.layout import Layout
from baton.kv.verify import ALWAYS
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from tests.integration.worker.test_flipped_bits import rig
from tests.support.stores import MIB

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.xdist_group("vllm-engines"),
    # What vLLM's libraries warn of is not for this project to mend.
    pytest.mark.filterwarnings("ignore"),
]

LENGTHS = (480, 160, 320)
"""Of the prompts of one beginning; the longest first, so that it brings the others' KV."""
BESIDE = (0, -1, 1)
"""Tokens that the prompts of a beginning are longer: ends of blocks, windows and chunks, and next
to them.
"""
BEGINNINGS = 12
OUTPUT_TOKENS = 8
HANDED_OVER = 4
PATIENT = 1000.0
"""Seconds: the check's longer prompt is computed too, on however slow a machine."""
CLOSE = 1e-4
"""Best logits that are nearer to each other than this may change places: sums round."""
STATES_CLOSE = 0.5
"""The same in bfloat16 where what was decoded token by token is computed again in one chunk."""
STATE_LENGTHS = (1110, 1092)
GREEDY = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)


def all_prompts() -> list[tuple[int, ...]]:
    found = []
    for seed in range(BEGINNINGS):
        draw = random.Random(seed)
        lengths = [length + BESIDE[seed % len(BESIDE)] for length in LENGTHS]
        longest = tuple(draw.randrange(VOCAB) for _ in range(max(lengths)))
        found += [longest[:length] for length in lengths]
    return found


def run_alone(engine: Engine, prompts: list[tuple[int, ...]]) -> tuple[list[list[int]], int]:
    """Return the outputs of one prompt after the other, and how many tokens were cached."""
    outputs, cached = [], 0
    for number, prompt in enumerate(prompts):
        (output,) = run_local(engine, [SequenceRequest(number, b"root", prompt, GREEDY)])
        outputs.append(output.tokens[0])
        assert output.ended is not None
        cached += output.ended.cached_tokens
    return outputs, cached


def check_equal(
    outputs: list[list[int]], expected: list[dict[str, Any]], close: float = CLOSE
) -> None:
    """Compare outputs with stock vLLM's."""
    assert len(outputs) == len(expected)
    for number, (output, one) in enumerate(zip(outputs, expected, strict=True)):
        pairs = zip(output, one["tokens"], one["gaps"], strict=True)
        gap = next((gap for ours, stocks, gap in pairs if ours != stocks), 0.0)
        assert gap < close, f"prompt {number}: {output}, not {one['tokens']}"


def stored_tokens(prompt: tuple[int, ...]) -> int:
    """Return the tokens of a prompt that the store has once it was answered."""
    return min(len(prompt) // 32 * 32, len(prompt) - 1)


def found_in_store(layout: Layout, prompts: list[tuple[int, ...]], number: int) -> range:
    """Return how many tokens a prompt may find that comes after those before it.

    Prompts of one beginning share all but their ends. Where there are groups, the second one finds
    no cut in the first one's blocks, but those that chunks leave, and publishes one for the third.
    """
    all_of_it = stored_tokens(prompts[number])
    if number % len(LENGTHS) == 0:
        return range(1)
    if not layout.groups:
        return range(all_of_it, all_of_it + 1)
    least = 0 if number % len(LENGTHS) == 1 else len(prompts[number - 1]) // 32 * 32
    return range(least, all_of_it + 1)


@pytest.mark.parametrize("family", VLLM_FAMILIES[1:])
async def test_the_kv_of_a_family_moves(tmp_path: Path, family: str) -> None:
    model = write_family(tmp_path / family, family)
    prompts = all_prompts()
    settings = EngineSettings(
        kind="vllm", model=model, dtype="float32", threads=1, kv_bytes=32 * MIB
    )
    asked = {
        "model": str(model),
        "prompts": list(map(list, prompts)),
        "output_tokens": OUTPUT_TOKENS,
    }
    prepare(settings)
    expected = await asyncio.to_thread(stock, asked)

    def make_engine() -> Engine:
        return create_engine(settings)

    async with rig(make_engine, tmp_path, "shm", ALWAYS, family) as it:
        loop = it.core._loop
        await loop.call(lambda engine: check_kv_moves(engine, PATIENT))
        outputs, cached = await loop.call(lambda engine: run_alone(engine, prompts))
        check_equal(outputs, expected)
        shorter = [len(prompt) for n, prompt in enumerate(prompts) if n % len(LENGTHS)]
        assert cached == sum((length - 1) // 32 * 32 for length in shorter)
        over_store = []
        it.output_tokens = OUTPUT_TOKENS
        for number, prompt in enumerate(prompts):
            it.prompt = list(prompt)
            tokens, cached = await it.ask()
            over_store.append(tokens)
            assert cached in found_in_store(it.core.engine.info.layout, prompts, number)
        check_equal(over_store, expected)
        again, cached = await it.ask()
        check_equal([again], expected[-1:])
        assert cached == stored_tokens(prompts[-1])
        begun = await loop.call(
            lambda engine: [
                continue_output(engine, each, Begun(), HANDED_OVER, OUTPUT_TOKENS)
                for each in prompts
            ]
        )
    engine = make_engine()
    try:
        moved = [
            list(continue_output(engine, prompt, each, OUTPUT_TOKENS, OUTPUT_TOKENS).output)
            for prompt, each in zip(prompts, begun, strict=True)
        ]
    finally:
        engine.close_engine()
    check_equal(moved, expected)


@pytest.mark.parametrize("family", VLLM_STATE_FAMILIES)
async def test_states_move(tmp_path: Path, family: str) -> None:
    model = write_family(tmp_path / family, family)
    draw = random.Random(0)
    longest = tuple(draw.randrange(VOCAB) for _ in range(max(STATE_LENGTHS)))
    prompts = [longest[:length] for length in STATE_LENGTHS]
    settings = EngineSettings(
        kind="vllm", model=model, dtype="bfloat16", threads=1, kv_bytes=32 * MIB
    )
    asked = {
        "model": str(model),
        "prompts": list(map(list, prompts)),
        "output_tokens": OUTPUT_TOKENS,
        "dtype": settings.dtype,
        "prefix_cache": True,
    }
    prepare(settings)
    expected = await asyncio.to_thread(stock, asked)
    async with rig(lambda: create_engine(settings), tmp_path, "shm", ALWAYS, family) as it:
        loop = it.core._loop
        block = it.core.engine.info.layout.block_tokens
        cut = min(STATE_LENGTHS) // block * block
        assert 0 < cut == max(STATE_LENGTHS) // block * block
        outputs, cached = await loop.call(lambda engine: run_alone(engine, prompts))
        check_equal(outputs, expected)
        assert cached == cut
        it.output_tokens = OUTPUT_TOKENS
        for prompt, one, stored in zip(prompts, expected, (0, cut), strict=True):
            it.prompt = list(prompt)
            tokens, cached = await it.ask()
            check_equal([tokens], [one])
            assert cached == stored

        async def go_on(begun: Begun, until: int) -> Begun:
            return await loop.call(
                lambda engine: continue_output(engine, prompts[1], begun, until, OUTPUT_TOKENS)
            )

        begun = await go_on(Begun(), HANDED_OVER)
        assert begun.cut_tokens == cut
        zeroed = {at: bytes(len(kv)) if at[0] else kv for at, kv in begun.blocks.items()}
        moved = await go_on(begun, OUTPUT_TOKENS)
        wrong = await go_on(replace(begun, blocks=zeroed), OUTPUT_TOKENS)
    check_equal([list(moved.output)], expected[1:], STATES_CLOSE)
    assert wrong.output != moved.output, "no state is read"
