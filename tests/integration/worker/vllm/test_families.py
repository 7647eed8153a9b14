"""Models with experts, windows or chunks: the tokens of stock vLLM, wherever their KV comes from.

Alone, out of an engine's own prefix cache; over the store; and moved, from one engine to another
in the middle of the output.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.self_check import check_kv_moves
from baton.engine.testing.random_families import VLLM_FAMILIES, VOCAB, write_family
from baton.engine.testing.vllm_alone import stock
from baton.engine.vllm.environment import prepare
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
GREEDY = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)


def all_prompts() -> list[tuple[int, ...]]:
    found = []
    for seed in range(BEGINNINGS):
        draw = random.Random(seed)
        lengths = [length + BESIDE[seed % len(BESIDE)] for length in LENGTHS]
        longest = tuple(draw.randrange(VOCAB) for _ in range(max(lengths)))
        found += [longest[:length] for length in lengths]
    return found


@dataclass
class Kept:
    """What one engine hands to another: the first tokens, and KV by its key."""

    output: tuple[int, ...]
    blocks: Mapping[bytes, bytes]


def run_alone(engine: Engine, prompts: list[tuple[int, ...]]) -> tuple[list[list[int]], int]:
    """Return the outputs of one prompt after the other, and how many tokens were cached."""
    outputs, cached = [], 0
    for number, prompt in enumerate(prompts):
        (output,) = run_local(engine, [SequenceRequest(number, b"root", prompt, GREEDY)])
        outputs.append(output.tokens[0])
        assert output.ended is not None
        cached += output.ended.cached_tokens
    return outputs, cached


def give_up_midway(engine: Engine, prompt: tuple[int, ...]) -> Kept:
    """Compute a prompt and the first tokens, read the KV out, and end there."""
    engine.add(SequenceRequest(0, b"root", prompt, GREEDY))
    output: list[int] = []
    keys: dict[int, bytes] = {}
    while len(output) < HANDED_OVER:
        for event in engine.step():
            match event:
                case Admitted():
                    engine.start(0, event.cached_tokens)
                case SampledTokens():
                    output.extend(event.token_ids)
                case BlocksReady():
                    keys |= dict(enumerate(event.keys, event.first_index))
    places = [memoryview(bytearray(engine.info.block_bytes)) for _ in keys]
    engine.read_blocks(0, list(keys), places)
    engine.close(0)
    return Kept(tuple(output), dict(zip(keys.values(), map(bytes, places), strict=True)))


def go_on(engine: Engine, prompt: tuple[int, ...], kept: Kept) -> list[int]:
    """Return the whole output where another engine computed the beginning."""
    engine.add(SequenceRequest(0, b"root", prompt, GREEDY, output=kept.output))
    output = list(kept.output)
    block = engine.info.layout.block_tokens
    while True:
        for event in engine.step():
            match event:
                case Admitted():
                    first = event.cached_tokens // block
                    found = [kept.blocks[key] for key in event.keys[first:] if key in kept.blocks]
                    indexes = range(first, first + len(found))
                    engine.write_blocks(0, indexes, memoryview(b"".join(found)))
                    engine.start(0, (first + len(found)) * block)
                case SampledTokens():
                    output.extend(event.token_ids)
                case SequenceEnded():
                    assert event.computed_tokens <= block + OUTPUT_TOKENS
                    engine.close(0)
                    engine.evict_blocks()
                    return output


def check_equal(outputs: list[list[int]], expected: list[dict[str, Any]]) -> None:
    """Compare outputs with stock vLLM's."""
    assert len(outputs) == len(expected) == BEGINNINGS * len(LENGTHS)
    for number, (output, one) in enumerate(zip(outputs, expected, strict=True)):
        pairs = zip(output, one["tokens"], one["gaps"], strict=True)
        gap = next((gap for ours, stocks, gap in pairs if ours != stocks), 0.0)
        assert gap < CLOSE, f"prompt {number}: {output}, not {one['tokens']}"


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
            stored = min(len(prompt) // 32 * 32, len(prompt) - 1)
            assert cached == (stored if number % len(LENGTHS) else 0)
        check_equal(over_store, expected)
        kept = await loop.call(lambda engine: [give_up_midway(engine, each) for each in prompts])
    engine = make_engine()
    try:
        moved = [go_on(engine, prompt, each) for prompt, each in zip(prompts, kept, strict=True)]
    finally:
        engine.close_engine()
    check_equal(moved, expected)
