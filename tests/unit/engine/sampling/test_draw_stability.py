"""A draw is the same beside other rows, elsewhere, with other threads, and in every release."""

import math

import pytest
import torch
from torch import Tensor

from baton.engine.sampling.draw import Draw
from baton.engine.sampling.sample import sample
from baton.sampling import SamplingParams


def token(logits: Tensor, asked: Draw) -> int:
    (sampled,) = sample(logits.unsqueeze(0), [asked])
    return sampled.token


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_a_full_batch_draws_what_it_draws_alone(dtype: torch.dtype) -> None:
    vocab, count = 5003, 32
    rows = (torch.randn(count, vocab, generator=torch.Generator().manual_seed(1)) * 2).to(dtype)
    kinds: list[dict[str, float]] = [
        {"top_p": 0.9},
        {"temperature": 0.0},
        {},
        {"top_p": 0.9, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
        {"top_k": 40, "top_p": 0.8},
        {"min_p": 0.05},
        {"temperature": 0.0, "presence_penalty": 1.0},
    ]
    draws = [
        Draw(
            SamplingParams(seed=row, **{"temperature": 0.8, **kinds[row % 7]}),  # type: ignore[arg-type]
            0,
            [*range(row), 0, 1, 2],
            row,
        )
        for row in range(count)
    ]
    together = [sampled.token for sampled in sample(rows, draws)]
    alone = [token(row, asked) for row, asked in zip(rows, draws, strict=True)]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(2)).tolist()
    moved = sample(rows[order], [draws[row] for row in order])
    assert together == alone
    assert [sampled.token for sampled in moved] == [together[row] for row in order]
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        assert [sampled.token for sampled in sample(rows, draws)] == together
    finally:
        torch.set_num_threads(threads)


def test_draws_are_the_same_in_every_release() -> None:
    # A stream may continue on a worker of another version: to change these breaks it.
    logits = torch.tensor([6 * math.sin(0.37 * i * i) for i in range(5000)])
    prompt, output = range(100, 140), [7, 7, 9]
    kinds: dict[str, dict[str, float]] = {
        "plain": {},
        "top_p": {"top_p": 0.9},
        "top_k": {"top_k": 50},
        "min_p": {"min_p": 0.2},
        "all": {"top_k": 700, "top_p": 0.7, "min_p": 0.01, "repetition_penalty": 1.3},
        "penalties": {"top_p": 0.9, "frequency_penalty": 0.5, "presence_penalty": -1.5},
    }
    found = {
        name: [
            token(
                logits,
                Draw(
                    SamplingParams(seed=seed, temperature=0.8, **parameters),  # type: ignore[arg-type]
                    seed % 2,
                    [*prompt, *output],
                    len(prompt),
                ),
            )
            for seed in (0, -1, 2**40)
        ]
        for name, parameters in kinds.items()
    }
    assert found == {
        "plain": [50, 3952, 851],
        "top_p": [50, 3952, 843],
        "top_k": [15, 4417, 589],
        "min_p": [50, 3940, 851],
        "all": [45, 3920, 795],
        "penalties": [50, 3952, 843],
    }
