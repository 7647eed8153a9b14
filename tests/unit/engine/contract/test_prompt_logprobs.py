"""Log probabilities of a prompt: each of its tokens is computed for them, cached or not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from baton.engine.base import Engine
from baton.engine.events import Admitted, PromptScored, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.request.stream_events import TokenLogprob
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    drain,
    generate,
    params,
    prompt,
    request,
    steps,
)


@pytest.fixture(autouse=True)
def only_where_there_are_any(any_engine: Engine) -> None:
    if "prompt_logprobs" not in any_engine.info.features:
        pytest.skip("this engine has none")


def check_alike(some: Sequence[TokenLogprob], others: Sequence[TokenLogprob]) -> None:
    """Compare what was told of the same tokens in other chunks."""
    for one, other in zip(some, others, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [value for _, value in one.top] == pytest.approx(
            [value for _, value in other.top], abs=1e-3
        )


def test_they_are_those_that_its_tokens_have_when_they_are_sampled(engine: Engine) -> None:
    asked = request(prompt_logprobs=2, sampling=params(max_tokens=3))
    plain = generate(engine, replace(asked, prompt_logprobs=None))  # and so all of it is cached
    first, second = (run_local(engine, [replace(asked, id=number)])[0] for number in (1, 2))
    assert first.tokens[0] == second.tokens[0] == plain
    tokens = asked.prompt
    for output in (first, second):
        assert output.ended is not None
        assert output.ended.cached_tokens == 0
        assert len(output.prompt_logprobs) == len(tokens) - 1
        assert all(len(entry.top) == 2 for entry in output.prompt_logprobs)
    for at in (1, len(tokens) // 2, len(tokens) - 1):
        # The same token, sampled because no other may be, has its log probability.
        only = params(logprobs=2, max_tokens=1, allowed_token_ids=(tokens[at],))
        (forced,) = run_local(engine, [request(3, prompt=tokens[:at], sampling=only)])
        (expected,), told = forced.logprobs[0], first.prompt_logprobs[at - 1]
        assert told.logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert [one for one, _ in told.top] == [one for one, _ in expected.top]
    assert_baseline(engine)


def test_they_come_in_pieces_before_the_first_token_also_beside_others(
    tight_engine: Engine,
) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    length = 5 * block + 3
    one, other = (
        request(number, prompt(length, seed=number), prompt_logprobs=number, prefill_only=True)
        for number in range(2)
    )
    alone = [run_local(engine, [asked])[0] for asked in (one, other)]
    assert [len(output.prompt_logprobs) for output in alone] == [length - 1] * 2
    # Their blocks are in the prefix cache, where another one finds them.
    plain = request(2, one.prompt)
    for asked in (one, plain, other):
        engine.add(asked)
    told: dict[int, list[TokenLogprob]] = {0: [], 1: []}
    sampled: set[int] = set()
    for event in steps(engine):
        match event:
            case Admitted():
                assert event.cached_tokens == (5 * block if event.id == 2 else 0)
                engine.start(event.id, event.cached_tokens)
            case PromptScored():
                assert event.id not in sampled
                assert event.position == 1 + len(told[event.id])
                assert len(event.logprobs) <= engine.info.chunk_tokens
                told[event.id].extend(event.logprobs)
            case SampledTokens():
                sampled.add(event.id)
            case SequenceEnded():
                if event.id != 2:
                    assert event.computed_tokens == length
                engine.close(event.id)
    assert sampled == {0, 1, 2}
    for number, output in enumerate(alone):
        check_alike(told[number], output.prompt_logprobs)
        assert {len(entry.top) for entry in told[number]} == {number}
    assert_baseline(engine)


def test_they_are_of_the_prompt_alone_where_an_output_goes_on(engine: Engine) -> None:
    asked = request(prompt=prompt(70), prompt_logprobs=1)
    (whole,) = run_local(engine, [asked])
    tokens = whole.tokens[0]
    moved = replace(asked, id=1, output=tuple(tokens[:2]))
    assert admit(engine, moved).cached_tokens == 0
    with pytest.raises(ValueError, match="with prompt_logprobs all is computed here"):
        engine.start(1, 1)
    engine.start(1, 0, tokens[:5])
    events = drain(engine)
    told = [
        entry for event in events if isinstance(event, PromptScored) for entry in event.logprobs
    ]
    check_alike(told, whole.prompt_logprobs)
    assert [event.token_ids[0] for event in events if isinstance(event, SampledTokens)] == tokens[
        5:
    ]
    engine.close(1)
    # A prompt of one token has none.
    (single,) = run_local(engine, [request(2, prompt(1), prompt_logprobs=1)])
    assert single.prompt_logprobs == []
    assert_baseline(engine)


def test_a_preempted_sequence_reports_them_once(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    # Both fill all pages, and three tokens later each needs another.
    length = engine.stats().total_pages // 2 * block - 3
    asked = [
        request(
            number,
            prompt(length, seed=number),
            sampling=params(max_tokens=block),
            prompt_logprobs=0,
        )
        for number in range(2)
    ]
    alone = [run_local(engine, [each])[0] for each in asked]
    engine.evict_blocks()
    together = run_local(engine, asked)
    ended = [output.ended for output in together]
    assert sum(each.computed_tokens for each in ended if each is not None) > 2 * length + block
    for output, expected in zip(together, alone, strict=True):
        assert output.tokens == expected.tokens
        check_alike(output.prompt_logprobs, expected.prompt_logprobs)
    assert_baseline(engine)
