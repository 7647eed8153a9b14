"""Every family samples the tokens that transformers samples alone, however they are computed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.support.architectures import TORCH_FAMILIES
from baton.engine.testing.random_families import make_family
from tests.support.engine.contract import admit
from tests.support.engine.families import Outputs, assert_greedy, requests, unlike
from tests.unit.engine.conftest import MakeEngine

pytestmark = pytest.mark.xdist_group("transformers")

DENSE = ("gemma", "phi3", "olmo2", "granite", "glm4", "smollm3")
EXPERTS = ("qwen3-moe", "mixtral", "olmoe")
WINDOWED = {"gemma2", "gemma3", "gpt_oss"}
"""Of test_windows.py, as `TORCH_FAMILIES` names them."""
MOVED_AFTER = 7


def run(engine: Engine, batch: Sequence[SequenceRequest], source: Engine | None = None) -> Outputs:
    """Return the outputs of requests at once, with the KV of whole blocks taken from `source`."""
    tokens: dict[int, list[int]] = {each.id: list(each.output) for each in batch}
    given = {each.id: each for each in batch}
    for each in batch:
        engine.add(each)
    left = len(batch)
    while left:
        for event in engine.step():
            if isinstance(event, Admitted):
                found = event.cached_tokens
                if source is not None:
                    found = copied(engine, source, given[event.id], found)
                engine.start(event.id, found)
            elif isinstance(event, SampledTokens):
                tokens[event.id].extend(event.token_ids)
            elif isinstance(event, SequenceEnded):
                left -= 1
                if not given[event.id].prefill_only:
                    engine.close(event.id)
    return [tuple(each) for each in tokens.values()]


def copied(engine: Engine, source: Engine, asked: SequenceRequest, found: int) -> int:
    """Copy the whole blocks of a prompt into an engine that found some; return their tokens."""
    size = engine.info.layout.block_tokens
    blocks = (len(asked.prompt) - 1) // size
    for index in range(found // size, blocks):
        block = memoryview(bytearray(engine.info.block_bytes))
        source.read_blocks(asked.id, [index], [block])
        engine.write_blocks(asked.id, [index], block.toreadonly())
    return max(found, blocks * size)


@pytest.mark.parametrize("family", [*DENSE, *EXPERTS])
def test_tokens_equal_those_of_transformers_alone(
    make_engine: MakeEngine, tmp_path: Path, family: str
) -> None:
    model = unlike(make_family(family, tie_word_embeddings=False))
    model.set_attn_implementation("eager")  # others leave out softcaps
    model.save_pretrained(tmp_path)
    fields = {"model": tmp_path, "dtype": "float32", "context_tokens": 256}
    batch = requests()

    here = make_engine("native", **fields)
    expected = run(here, batch)
    assert_greedy(model, batch, expected)
    for each in batch:
        admitted = admit(here, each)
        assert admitted.cached_tokens == len(each.prompt) // 16 * 16
        here.close(each.id)
    assert run(here, batch) == expected, "from the prefix cache"

    there = make_engine("native", **fields, chunk_tokens=24)
    run(here, [replace(each, prefill_only=True) for each in batch])
    assert run(there, batch, source=here) == expected, "with the KV of another engine"
    there.evict_blocks()
    moved = [
        replace(each, output=tokens[:MOVED_AFTER])
        for each, tokens in zip(batch, expected, strict=True)
    ]
    assert run(there, moved) == expected, "continued on another engine, in chunks"

    plain = make_engine(**fields, chunk_tokens=40)
    assert run(plain, batch) == expected, "in plain torch"


def test_every_family_is_tested() -> None:
    tested = {name.replace("-", "_") for name in (*DENSE, *EXPERTS)}
    assert set(TORCH_FAMILIES.values()) == {"llama", "qwen2", "qwen3", *tested, *WINDOWED}
