"""The sampler is a pure function with the support and the distribution that its parameters say."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from baton.engine.sampling.draw import Draw, uniform
from baton.engine.sampling.sample import sample
from baton.sampling import SamplingParams
from tests.support.examples import examples


def draw(
    sampling: SamplingParams,
    *,
    choice: int = 0,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    forbidden: Sequence[int] = (),
) -> Draw:
    return Draw(sampling, choice, [*prompt, *output], len(prompt), frozenset(forbidden))


def token(logits: Tensor, asked: Draw) -> int:
    (sampled,) = sample(logits.unsqueeze(0), [asked])
    return sampled.token


def reachable(logits: Tensor, **parameters: float) -> set[int]:
    """Tokens drawn for many seeds."""
    seeds = range(600)
    rows = logits.expand(len(seeds), -1)
    draws = [draw(SamplingParams(seed=seed, **parameters)) for seed in seeds]  # type: ignore[arg-type]
    return {sampled.token for sampled in sample(rows, draws)}


def support(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The tokens that may be drawn, worked out the plain way."""
    scaled = [value / temperature for value in logits.tolist()]
    top = max(scaled)
    weights = {i: math.exp(value - top) for i, value in enumerate(scaled)}
    kept = {i for i, weight in weights.items() if weight >= min_p}
    if top_k:
        kth = sorted(weights.values(), reverse=True)[min(top_k, len(scaled)) - 1]
        kept = {i for i in kept if weights[i] >= kth}
    if top_p < 1:
        total = sum(weights[i] for i in kept)
        mass = 0.0
        last = 0.0
        for i in sorted(kept, key=lambda i: -weights[i]):
            if mass >= top_p * total:
                break
            mass += weights[i]
            last = weights[i]
        kept = {i for i in kept if weights[i] >= last}
    return kept


# Differences of at least 1/4, so that rounding decides nothing.
LOGITS = st.lists(st.integers(-12, 12), min_size=2, max_size=12).map(
    lambda values: torch.tensor([value / 4 for value in values], dtype=torch.float64)
)


@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.1, 0.37, 0.73, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.013, 0.17, 0.61, 1.0]),
)
@settings(max_examples=examples(40))
def test_only_tokens_of_the_support_are_drawn(
    logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    allowed = support(logits, temperature, top_k, top_p, min_p)
    found = reachable(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assert found <= allowed
    weights = ((logits - logits.max()) / temperature).exp()
    total = sum(weights[i].item() for i in allowed)
    # 600 draws miss a token of 3 % once in 10^8 times.
    assert {i for i in allowed if weights[i].item() / total > 0.03} <= found


def test_the_distribution_is_that_of_the_softmax() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    count = 20_000
    rows = logits.expand(count, -1)
    drawn = sample(
        rows, [draw(SamplingParams(seed=seed, temperature=0.8)) for seed in range(count)]
    )
    counts = Counter(sampled.token for sampled in drawn)
    expected = (logits / 0.8).softmax(-1) * count
    squares = sum((counts[i] - e) ** 2 / e for i, e in enumerate(expected.tolist()))
    # Chi-square with 4 degrees of freedom: above 23.5 once in 10,000; the seeds are fixed.
    assert squares < 23.5


def test_seed_choice_and_position_give_independent_numbers() -> None:
    numbers = [
        uniform(seed, choice, position)
        for seed in (-(2**63), -1, 0, 1, 2**63 - 1)
        for choice in range(16)
        for position in range(64)
    ]
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02


def test_the_numbers_are_the_same_in_every_release() -> None:
    assert uniform(0, 0, 0) == 0.7676439437015464
    assert uniform(-1, 3, 77) == 0.9269074167363663


@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.05, 1.0),
    min_p=st.floats(0.0, 1.0),
    repetition=st.floats(0.5, 2.0),
    presence=st.floats(-2, 2),
    frequency=st.floats(-2, 2),
    output=st.lists(st.integers(0, 63), max_size=8),
)
@settings(max_examples=examples(24))
def test_a_row_draws_the_same_whatever_is_beside_it(
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition: float,
    presence: float,
    frequency: float,
    output: list[int],
) -> None:
    rows = torch.randn(5, 64, generator=torch.Generator().manual_seed(seed % 1000)) * 3
    mine = draw(
        SamplingParams(
            seed=seed,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition,
            presence_penalty=presence,
            frequency_penalty=frequency,
            logprobs=3,
        ),
        prompt=[1, 2, 3],
        output=output,
    )
    others = [
        draw(SamplingParams(seed=1, temperature=0)),
        draw(SamplingParams(seed=2, top_p=0.5)),
        draw(SamplingParams(seed=3, top_k=5, logprobs=7)),
        draw(SamplingParams(seed=4), forbidden=[0, 1]),
    ]
    (alone,) = sample(rows[:1], [mine])
    before = rows.clone()
    beside = sample(rows[[3, 0, 1, 2, 4]], [others[0], mine, *others[1:]])[1]
    again = sample(rows, [mine, *others])[0]
    assert alone.token == beside.token == again.token
    assert alone.logprob == again.logprob
    assert torch.equal(rows, before)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_give_a_token_all_the_same(
    temperature: float, bad: float
) -> None:
    logits = torch.zeros(2, 100)
    logits[0, 7] = bad
    draws = [draw(SamplingParams(seed=1, temperature=temperature, top_p=0.9))] * 2
    (broken, sound) = sample(logits, draws)
    assert 0 <= broken.token < 100
    assert sound.token == token(logits[1], draws[1])
    assert token(torch.full((100,), -math.inf), draws[0]) == 0


def test_greedy_takes_the_best_and_of_equals_the_first() -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 3.0])
    assert token(logits, draw(SamplingParams(seed=9, temperature=0))) == 1


def test_the_smallest_temperature_takes_the_best() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 20
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        row = logits.to(dtype)
        assert token(row, draw(SamplingParams(seed=5, temperature=1e-30))) == int(row.argmax())


def test_penalties_are_those_of_their_definitions() -> None:
    logits = torch.tensor([2.0, -2.0, 1.0, 0.5, 0.25], dtype=torch.float64)

    def best(**parameters: object) -> int:
        sampling = SamplingParams(seed=0, temperature=0, **parameters)  # type: ignore[arg-type]
        return token(logits, draw(sampling, prompt=[0, 1], output=[2, 2, 3]))

    assert best() == 0
    # 2 / 1.9 = 1.05 > 1 / 1.9: repeating divides what is positive, of prompt and output.
    assert best(repetition_penalty=1.9) == 0
    assert best(repetition_penalty=1.9, logit_bias={0: -0.1, 4: 0.71}) == 4
    # Divided by less than one, what is negative comes nearer to zero and stays below.
    assert best(repetition_penalty=0.5) == 0
    # Frequency counts the output alone: token 2 twice, token 3 once, token 0 never.
    assert best(frequency_penalty=-0.6) == 2
    assert best(frequency_penalty=-0.45, logit_bias={0: -0.2}) == 2
    assert best(frequency_penalty=2.0, logit_bias={0: -100.0}) == 4
    # Presence counts once, however often.
    assert best(presence_penalty=-1.2) == 2
    assert best(presence_penalty=-1.2, logit_bias={2: -0.6}) == 0
    assert best(logit_bias={1: 100.0}) == 1


def test_forbidden_tokens_are_never_drawn() -> None:
    logits = torch.tensor([50.0, 40.0, 1.0, 0.0])
    assert token(logits, draw(SamplingParams(seed=0, temperature=0), forbidden=[0, 1])) == 2
    drawn = {token(logits, draw(SamplingParams(seed=s), forbidden=[0, 1])) for s in range(50)}
    assert drawn == {2, 3}
    forced = SamplingParams(seed=0, temperature=0, logit_bias={0: 100.0})
    assert token(logits, draw(forced, forbidden=[0])) == 1


def test_logprobs_are_of_the_raw_logits() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = logits.log_softmax(-1)
    sampling = SamplingParams(seed=3, temperature=0.2, logit_bias={7: 100.0}, top_k=3, logprobs=4)
    (sampled,) = sample(logits.unsqueeze(0), [draw(sampling)])
    assert sampled.token == 7
    assert sampled.logprob is not None
    assert sampled.logprob.logprob == pytest.approx(expected[7].item())
    best = expected.topk(4)
    assert [pair[0] for pair in sampled.logprob.top] == best.indices.tolist()
    assert [pair[1] for pair in sampled.logprob.top] == pytest.approx(best.values.tolist())


def test_logprobs_of_zero_report_the_token_alone() -> None:
    logits = torch.zeros(1, 8)
    (asked, silent) = sample(
        logits.expand(2, -1),
        [draw(SamplingParams(seed=0, logprobs=0)), draw(SamplingParams(seed=0))],
    )
    assert asked.logprob is not None
    assert asked.logprob.top == ()
    assert asked.logprob.logprob == pytest.approx(-math.log(8))
    assert silent.logprob is None


def test_a_nucleus_wider_than_the_candidates_is_found_all_the_same() -> None:
    # 4,000 equally likely tokens after one that has a tenth: 0.5 needs far more than 1,024 of them.
    logits = torch.zeros(4001)
    logits[0] = math.log(4000 / 9)
    logits[1:] -= torch.arange(4000) * 1e-6
    count = 1000
    draws = [draw(SamplingParams(seed=seed, top_p=0.5)) for seed in range(count)]
    drawn = [sampled.token for sampled in sample(logits.expand(count, -1), draws)]
    assert 1024 < max(drawn) < 1800
    # The rows of few candidates beside them are not disturbed.
    narrow = torch.full((4001,), -30.0)
    narrow[17] = 0.0
    both = sample(torch.stack((logits, narrow)), draws[:2])
    assert both[0].token == drawn[0]
    assert both[1].token == 17


@pytest.mark.parametrize("temperature", [1e-9, 1e-40, 1e-300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_temperature_next_to_nothing_gives_the_best_token(
    temperature: float, dtype: torch.dtype
) -> None:
    logits = torch.tensor([0.5, 3.0, -torch.inf, 1.0], dtype=dtype)
    for limits in ({}, {"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}):
        sampling = SamplingParams(seed=1, temperature=temperature, **limits)  # type: ignore[arg-type]
        assert token(logits, draw(sampling)) == 1
