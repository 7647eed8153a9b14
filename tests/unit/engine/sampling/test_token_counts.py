"""Counts kept from step to step are those of the tokens counted anew."""

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from baton.engine.sampling.counts import TokenCounts
from baton.engine.sampling.draw import Draw
from baton.engine.sampling.penalties import adjust
from baton.sampling import SamplingParams


@given(tokens=st.lists(st.integers(0, 9)), prompt=st.integers(0, 12), step=st.integers(1, 5))
def test_counting_as_tokens_come_is_counting_at_the_end(
    tokens: list[int], prompt: int, step: int
) -> None:
    counts = TokenCounts(prompt)
    for end in range(0, len(tokens) + step, step):
        counts.catch_up(tokens[:end])
    assert list(counts.ids) == list(dict.fromkeys(tokens))
    output = Counter(tokens[prompt:])
    assert dict(zip(counts.ids, counts.times, strict=True)) == {
        token: output[token] for token in tokens
    }


def test_penalties_by_kept_counts_are_those_of_the_tokens() -> None:
    logits = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    sampling = [
        SamplingParams(repetition_penalty=1.3, frequency_penalty=0.2, presence_penalty=-0.4),
        SamplingParams(),
        SamplingParams(frequency_penalty=-1.1, logit_bias={3: 2.0}),
    ]
    tokens = [3, 5, 5, 7, 3, 3]
    counts = TokenCounts(2)
    counts.catch_up(tokens)
    anew = adjust(logits, [Draw(each, 0, tokens, 2) for each in sampling])
    kept = adjust(logits, [Draw(each, 0, tokens, 2, counts=counts) for each in sampling])
    assert torch.equal(anew, kept)
    assert torch.equal(kept[1], logits[1])
    # Its memory is not held: it goes on growing.
    counts.catch_up([*tokens, 19])
