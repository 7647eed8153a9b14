"""Requests to tiny models of many families, and what transformers would have sampled."""

import random
from collections.abc import Sequence
from typing import Any

import torch

from baton.engine.base import SequenceRequest
from baton.engine.testing.random_families import VOCAB
from tests.support.engine.contract import params

TOKENS = 32
"""Of each output."""
LENGTHS = (5, 16, 32, 33, 47, 63, 64, 65, 80, 97, 130, 144)
"""Of prompts, which end on, before and behind blocks of 16 and windows of 64 tokens."""
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
