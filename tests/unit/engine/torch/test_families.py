"""Every family samples the tokens that transformers samples alone, however they are computed."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.support.architectures import TORCH_FAMILIES
from baton.engine.testing.random_families import VOCAB, make_family
from tests.support.engine.contract import admit, params
from tests.unit.engine.conftest import MakeEngine

pytestmark = pytest.mark.xdist_group("transformers")

DENSE = ("phi3", "olmo2", "granite", "glm4", "smollm3")
EXPERTS = ("qwen3-moe", "mixtral", "olmoe")
WINDOWED = ("mistral", "gemma", "gemma2", "gemma3", "gpt-oss")
TOKENS = 32
MOVED_AFTER = 7
LENGTHS = (5, 16, 31, 32, 33, 47, 63, 64, 65, 80, 97, 130)
TIE = 1e-4
"""Logits this close may be ranked either way: sums are rounded."""
Outputs = list[tuple[int, ...]]


def requests() -> list[SequenceRequest]:
    """Return greedy requests of all lengths; the longer ones share their first 40 tokens."""
    draw = random.Random(11)
    shared = [draw.randrange(VOCAB) for _ in range(40)]
    return [
        SequenceRequest(
            id=number,
            root=b"root",
            prompt=(*shared[: length // 2], *(draw.randrange(VOCAB) for _ in range(length)))[
                :length
            ],
            sampling=params(max_tokens=TOKENS),
        )
        for number, length in enumerate(LENGTHS)
    ]


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


def assert_greedy(model: Any, batch: Sequence[SequenceRequest], outputs: Outputs) -> None:
    """Check that each token is the one that transformers ranks first after those before it."""
    texts = [(*each.prompt, *tokens) for each, tokens in zip(batch, outputs, strict=True)]
    padded = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.int64)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    with torch.inference_mode():
        logits = model(padded).logits
    for row, each, tokens in zip(logits, batch, outputs, strict=True):
        assert len(tokens) == TOKENS
        places = row[len(each.prompt) - 1 : len(each.prompt) - 1 + TOKENS]
        chosen = places.gather(1, torch.tensor(tokens).unsqueeze(1))
        assert (places.amax(1, keepdim=True) - chosen).max().item() < TIE
    assert len({token for tokens in outputs for token in tokens}) > TOKENS
    assert logits.std().item() > 0.3, "logits this flat would hide mistakes"


def unlike(model: Any) -> Any:
    """Return a model whose norms and biases differ from ones and zeros."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.2 * torch.randn(parameter.shape, generator=draw)
    return model


@pytest.mark.parametrize("family", [*DENSE, *EXPERTS, *WINDOWED])
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
    tested = {name.replace("-", "_") for name in (*DENSE, *EXPERTS, *WINDOWED)} - {"mistral"}
    assert set(TORCH_FAMILIES.values()) == {"llama", "qwen2", "qwen3", *tested}
