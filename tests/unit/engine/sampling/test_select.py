"""Both ways of choosing by weight give the token that plain integer arithmetic gives."""

from fractions import Fraction
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from baton.engine.sampling import select_host
from baton.engine.sampling.draw import Draw, uniform
from baton.engine.sampling.select_device import select_rows_on_device
from baton.engine.sampling.select_host import select_rows
from baton.engine.sampling.weights import BLOCK, SCALE, block_sums, token_weights
from baton.sampling import SamplingParams
from tests.support.examples import examples


def plain(weights: list[int], sampling: SamplingParams, point: float) -> int:
    """The definition, in integers; top_p is a multiple of 1/128, so that its share is exact too."""
    floor = max(1.0, float(torch.tensor(sampling.min_p * SCALE, dtype=torch.float32)))
    if sampling.top_k:
        floor = max(floor, sorted(weights, reverse=True)[: sampling.top_k][-1])
    if sampling.top_p < 1:
        kept = sorted((each for each in weights if each >= floor), reverse=True)
        share, mass = Fraction(sampling.top_p) * sum(kept), 0
        for floor in kept:
            mass += floor
            if mass >= share:
                break
    kept = [each if each >= floor else 0 for each in weights]
    target, mass = Fraction(point) * sum(kept), 0
    for token, each in enumerate(kept):
        mass += each
        if mass > target:
            return token
    raise AssertionError("a point below 1 is inside of the sum")


def both(weights: Tensor, sampling: SamplingParams, point: float) -> set[int]:
    row = weights.unsqueeze(0)
    return {
        *select_rows(row, [sampling], [point]),
        int(select_rows_on_device(row, [sampling], [point]).item()),
    }


PARAMETERS = st.builds(
    SamplingParams,
    top_k=st.sampled_from([0, 0, 1, 2, 7, 50, 70, 3000]),
    top_p=st.sampled_from([1.0, 1.0, 1 / 128, 0.25, 0.5, 115 / 128, 127 / 128]),
    min_p=st.sampled_from([0.0, 0.0, 1e-6, 0.01, 0.3, 1.0]),
)


@given(
    sampling=PARAMETERS,
    vocab=st.sampled_from([1, 2, 63, 64, 65, 200, 1000]),
    spread=st.sampled_from([0.0, 0.5, 3.0, 9.0]),
    seed=st.integers(0, 1000),
    few=st.sampled_from([0, 8, 4096]),
)
@settings(max_examples=examples(120))
def test_the_token_is_that_of_integer_arithmetic(
    sampling: SamplingParams, vocab: int, spread: float, seed: int, few: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Rounded, so that there are equals.
    logits = (torch.randn(1, vocab, generator=generator) * spread * 4).round() / 4
    weights = token_weights(logits, [Draw(SamplingParams(temperature=0.8), 0, (), 0)])[0]
    point = uniform(seed, vocab, 0)
    expected = plain([int(each) for each in weights.tolist()], sampling, point)
    with pytest.MonkeyPatch.context() as patch:
        # However few are gathered: what counts values is chosen for speed alone.
        patch.setattr(select_host, "_FEW", few)
        assert both(weights, sampling, point) == {expected}


@pytest.mark.parametrize("vocab", [32_000, 50_257])
@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
def test_large_vocabularies_too(vocab: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(vocab)
    rows = torch.randn(3, vocab, generator=generator) * spread
    weights = token_weights(rows, [Draw(SamplingParams(temperature=0.8), 0, (), 0)] * 3)
    for row, (top_k, top_p, min_p) in zip(
        weights, ((0, 115 / 128, 0.0), (5000, 0.5, 0.0), (0, 1.0, 0.001)), strict=True
    ):
        sampling = SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p)
        values = [int(each) for each in row.tolist()]
        for point in (0.0, 0.37, 1 - 2.0**-53):
            assert both(row, sampling, point) == {plain(values, sampling, point)}


def test_a_share_that_is_reached_exactly_needs_no_more_tokens() -> None:
    weights = torch.tensor([0.25, 1.0, 0.5, 0.25]) * SCALE
    assert both(weights, SamplingParams(top_p=0.5), 0.99) == {1}
    assert both(weights, SamplingParams(top_p=0.75), 0.99) == {2}
    assert both(weights, SamplingParams(top_p=0.76), 0.99) == {3}


@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0])
def test_the_nucleus_ends_at_the_exact_weight(spread: float) -> None:
    # Where sums were rounded, shares next to a sum of the greatest would miss by one.
    logits = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(1)) * spread
    row = token_weights(logits, [Draw(SamplingParams(temperature=0.8), 0, (), 0)])[0].numpy()
    descending = sorted((int(each) for each in row.tolist()), reverse=True)
    sums = list(accumulate(descending))
    for count in (1, 2, 777, 12_345, 20_000):
        value = descending[count - 1]
        first = descending.index(value) + 1
        assert select_host._nucleus(row, sums[first - 1]) == value
        assert select_host._nucleus(row, sums[first - 1] - 0.5) == value
        if sums[-1] > sums[count - 1]:
            later = descending[count]
            assert select_host._nucleus(row, sums[count - 1] + 0.5) == later


@pytest.mark.parametrize("vocab", [1, 63, 64, 65, 50_257])
def test_sums_of_blocks_are_exact(vocab: int) -> None:
    logits = torch.randn(2, vocab, generator=torch.Generator().manual_seed(vocab))
    weights = token_weights(logits, [Draw(SamplingParams(temperature=0.8), 0, (), 0)] * 2)
    for row, sums in zip(weights.tolist(), block_sums(weights).tolist(), strict=True):
        blocks = [row[at : at + BLOCK] for at in range(0, vocab, BLOCK)]
        assert sums == [sum(int(each) for each in block) for block in blocks]


def test_a_weight_depends_on_no_neighbour_and_no_position() -> None:
    # 50,257 is odd: rows begin at every alignment, and vector registers end anywhere.
    rows = torch.randn(8, 50_257, generator=torch.Generator().manual_seed(5)) * 3
    draws = [Draw(SamplingParams(temperature=0.5 + row / 7), 0, (), 0) for row in range(8)]
    together = token_weights(rows, draws)
    for row, asked in enumerate(draws):
        alone = token_weights(rows[row : row + 1], [asked])
        assert torch.equal(alone[0], together[row])
        shifted = rows[row].repeat(2)[row + 1 : row + 1 + 50_257].unsqueeze(0)
        assert torch.equal(token_weights(shifted, [asked])[0], together[row].roll(-(row + 1)))


def test_the_best_token_weighs_the_scale_and_the_unlikeliest_nothing() -> None:
    logits = torch.tensor([[0.0, -24.0, -24.5, -torch.inf, -1.0]])
    weights = token_weights(logits, [Draw(SamplingParams(temperature=1), 0, (), 0)])[0].tolist()
    assert weights[0] == SCALE
    # exp(-24) * 2^34 = 0.65; exp(-24.5) * 2^34 = 0.39.
    assert weights[1:4] == [1, 0, 0]
    assert weights[4] == pytest.approx(SCALE * 0.36787944, rel=1e-6)


def test_what_weighs_nothing_is_as_the_definition_has_it() -> None:
    logits = torch.randn(4, 4097, generator=torch.Generator().manual_seed(3)) * 8
    logits[1, ::2] = -torch.inf
    logits[2] = -torch.inf  # no best one
    logits[3, 7] = torch.inf
    temperatures = (1.0, 0.05, 1.0, 1.0)  # at 0.05 exponentials are denormal
    draws = [Draw(SamplingParams(temperature=each), 0, (), 0) for each in temperatures]
    steepness = torch.tensor([1 / each for each in temperatures]).unsqueeze(1)
    defined = ((logits - logits.amax(dim=-1, keepdim=True)) * steepness).exp() * SCALE
    assert torch.equal(token_weights(logits, draws).nan_to_num(-1), defined.round().nan_to_num(-1))
