"""Which tokens are sampled, and which end an output."""

from itertools import pairwise
from typing import Any

import pytest

from baton.engine.base import Engine
from baton.engine.events import EndReason
from baton.engine.local import run_local
from tests.support.engine.contract import assert_baseline, generate, params, prompt, request


def test_a_stop_token_ends_the_output_and_is_part_of_it(engine: Engine) -> None:
    free = generate(engine, request())
    stop = free[3]
    at = free.index(stop)
    (output,) = run_local(engine, [request(sampling=params(stop_token_ids=(stop,)))])
    assert output.tokens[0] == free[: at + 1]
    assert output.ended is not None
    assert output.ended.reasons == (EndReason.STOP,)


def test_min_tokens_keeps_stop_tokens_away(engine: Engine) -> None:
    stop = (generate(engine, request())[0],)
    (output,) = run_local(engine, [request(sampling=params(stop_token_ids=stop, min_tokens=5))])
    assert stop[0] not in output.tokens[0][:5]
    assert len(output.tokens[0]) >= 5


def test_where_every_token_is_forbidden_one_is_sampled_and_ends_nothing(engine: Engine) -> None:
    every = tuple(range(engine.info.vocab_tokens))
    for number, temperature in enumerate((0.0, 1.0)):
        asked = request(
            number,
            sampling=params(temperature=temperature, stop_token_ids=every, min_tokens=5),
        )
        (output,) = run_local(engine, [asked])
        assert len(output.tokens[0]) == 6
        assert output.ended is not None
        assert output.ended.reasons == (EndReason.STOP,)
    assert_baseline(engine)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_allowed_tokens_are_sampled(engine: Engine, temperature: float) -> None:
    eos = engine.info.eos_token_ids[0]

    def tokens(output: tuple[int, ...] = (), **fields: Any) -> list[int]:
        asked = params(temperature=temperature, max_tokens=12, **fields)
        return generate(engine, request(sampling=asked, output=output))

    free = tokens()
    allowed = tuple(token for token in range(30, 36) if token not in free)
    found = tokens(allowed_token_ids=allowed)
    assert set(found) <= set(allowed)
    assert temperature == 0 or len(set(found)) > 1
    # Another engine goes on with the same, and all tokens allowed are as if nothing was said.
    assert tokens(tuple(found[:5]), allowed_token_ids=allowed) == found[5:]
    if "logit_bias" in engine.info.features:  # and so there are logits
        assert tokens(allowed_token_ids=tuple(range(engine.info.vocab_tokens))) == free
    # It stands above what makes tokens likely, and below nothing.
    penalties = {"repetition_penalty": 2.0, "frequency_penalty": 2.0, "top_k": 3, "top_p": 0.5}
    biased = tokens(allowed_token_ids=allowed, logit_bias={free[0]: 100.0}, **penalties)
    assert set(biased) <= set(allowed)
    # An end that is allowed comes after min_tokens; where it is all that is allowed, it comes.
    ended = tokens(allowed_token_ids=(*allowed, eos), min_tokens=4, ignore_eos=False)
    assert eos not in ended[:4]
    assert tokens(allowed_token_ids=(eos,), ignore_eos=False) == [eos]
    assert tokens(allowed_token_ids=(eos,), min_tokens=4, ignore_eos=False) == [eos] * 5
    assert tokens(allowed_token_ids=(eos,)) == [eos] * 12


def test_an_output_goes_on_elsewhere_with_the_same_tokens(engine: Engine) -> None:
    sampling = params(
        temperature=0.9, seed=11, max_tokens=16, frequency_penalty=0.5, repetition_penalty=1.2
    )
    tokens = prompt(engine.info.layout.block_tokens + 5)
    whole = generate(engine, request(0, tokens, sampling=sampling))
    assert engine.info.exact_continuation
    for done in (1, 7, 15):
        engine.evict_blocks()
        asked = request(0, tokens, sampling=sampling, output=tuple(whole[:done]))
        assert generate(engine, asked) == whole[done:]


def test_log_probabilities_are_those_of_the_tokens(engine: Engine) -> None:
    if "logprobs" not in engine.info.features:
        pytest.skip("this engine has none")
    plain = generate(engine, request())
    (output,) = run_local(engine, [request(sampling=params(logprobs=3))])
    assert output.tokens[0] == plain
    for token, logprob in zip(plain, output.logprobs[0], strict=True):
        assert len(logprob.top) == 3
        # A greedy token is the likeliest.
        assert logprob.top[0] == (token, logprob.logprob)
        assert 0 >= logprob.logprob >= logprob.top[1][1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_words_are_not_completed(engine: Engine, temperature: float) -> None:
    if "bad_words" not in engine.info.features:
        pytest.skip("this engine has none")

    def tokens(output: tuple[int, ...] = (), **fields: Any) -> list[int]:
        asked = params(temperature=temperature, max_tokens=12, **fields)
        return generate(engine, request(sampling=asked, output=output))

    free = tokens()
    # The third token is forbidden behind the second, and nowhere else.
    pair = tuple(free[1:3])
    found = tokens(bad_word_ids=(pair,))
    assert found[:2] == free[:2]
    assert found[2] != free[2]
    assert pair not in pairwise(found)
    # Another engine goes on with the same; what the prompt ends with does not count.
    assert tokens(tuple(found[:2]), bad_word_ids=(pair,)) == found[2:]
    assert tokens(bad_word_ids=((prompt(20)[-1], free[0]),))[0] == free[0]
    assert free[0] not in tokens(bad_word_ids=((free[0],),))
