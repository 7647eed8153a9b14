"""A sequence's life from `add` to `close`, and what is told of it."""

from dataclasses import replace

import pytest

from baton.engine.base import Engine
from baton.engine.events import Admitted, BlocksReady, EndReason, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.kv.keys import prompt_keys
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    drain,
    generate,
    params,
    prompt,
    request,
    tokens_of,
)


def test_a_life_from_add_to_close(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(2 * block + block // 2)
    keys = prompt_keys(b"root", tokens, block)
    assert admit(engine, request(7, tokens)) == Admitted(7, 0, keys.all)
    assert not engine.has_work()
    assert engine.stats().running == 1
    engine.start(7, 0)
    events = drain(engine)
    ready = [event for event in events if isinstance(event, BlocksReady)]
    drawn = [event for event in events if isinstance(event, SampledTokens)]
    assert {event.id for event in events} == {7}
    assert ready[0].first_index == 0
    # Half a block and 7 tokens of the output fill none.
    assert tuple(key for event in ready for key in event.keys) == keys.full
    assert [event.position for event in drawn] == list(range(8))
    ended = events[-1]
    assert isinstance(ended, SequenceEnded)
    assert ended.reasons == (EndReason.LENGTH,)
    # The last token has no KV.
    computed = len(tokens) + 7
    assert (ended.computed_tokens, ended.cached_tokens, ended.output_tokens) == (computed, 0, 8)
    assert ended.kv_byte_seconds > 0
    assert ended.queue_seconds >= 0
    assert ended.error == ""
    assert engine.stats().running == 0
    assert engine.stats().free_pages == engine.stats().total_pages - 3
    engine.close(7)
    assert_baseline(engine)


def test_blocks_of_the_output_are_reported_as_they_fill(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(block - 6)
    admit(engine, request(0, tokens, sampling=params(max_tokens=2 * block + 8)))
    engine.start(0, 0)
    events = drain(engine)
    ready = [event for event in events if isinstance(event, BlocksReady)]
    assert [event.first_index for event in ready] == [0, 1, 2]
    named = [key for event in ready for key in event.keys]
    assert tuple(named) == prompt_keys(b"root", [*tokens, *tokens_of(events)], block).full


def test_the_next_turn_finds_prompt_and_answer(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    first = prompt(2 * block - 2)
    answer = generate(engine, request(0, first, sampling=params(max_tokens=2 * block + 8)))
    turn = (*first, *answer, *prompt(9, seed=3))
    before = engine.stats()
    (output,) = run_local(engine, [request(1, turn)])
    assert output.ended is not None
    assert output.ended.cached_tokens == 4 * block
    after = engine.stats()
    assert after.cached_tokens - before.cached_tokens == 4 * block
    assert after.computed_tokens - before.computed_tokens == len(turn) - 4 * block + 7
    assert output.ended.computed_tokens == len(turn) - 4 * block + 7


def test_other_roots_share_nothing(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(4 * block + 1)
    generate(engine, request(0, tokens))
    assert admit(engine, request(1, tokens, root=b"another")).cached_tokens == 0
    assert admit(engine, request(2, tokens)).cached_tokens == 4 * block


def test_a_prompt_that_is_cached_whole_still_gets_its_next_token(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(4 * block)
    expected = generate(engine, request(0, tokens))
    event = admit(engine, request(1, tokens))
    # An engine may leave the block of the last token out, which it computes.
    assert event.cached_tokens in (3 * block, 4 * block)
    engine.start(1, event.cached_tokens)
    events = drain(engine)
    assert tokens_of(events) == expected
    assert isinstance(events[-1], SequenceEnded)
    assert events[-1].computed_tokens <= block + 7


def test_the_context_ends_an_output(tight_engine: Engine) -> None:
    engine = tight_engine
    most = engine.info.context_tokens
    (output,) = run_local(engine, [request(0, prompt(most - 14), sampling=params(max_tokens=1000))])
    assert len(output.tokens[0]) == 14
    assert output.ended is not None
    assert output.ended.reasons == (EndReason.LENGTH,)
    (last,) = run_local(engine, [request(0, prompt(most - 1))])
    assert len(last.tokens[0]) == 1
    with pytest.raises(ValueError, match=str(most)):
        engine.add(request(0, prompt(most)))


def test_a_prefill_samples_each_choice_once(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    asked = request(
        0,
        prompt(block + 4),
        sampling=params(seed=3, temperature=1.5),
        choices=(0, 1, 2, 3),
        prefill_only=True,
    )
    admit(engine, asked)
    engine.start(0, 0)
    events = drain(engine)
    drawn = [event for event in events if isinstance(event, SampledTokens)]
    assert [(event.choice, event.position) for event in drawn] == [(i, 0) for i in range(4)]
    assert len({event.token_ids for event in drawn}) > 1
    keys = prompt_keys(b"root", asked.prompt, block)
    ready = [event for event in events if isinstance(event, BlocksReady)]
    assert ready == [BlocksReady(0, 0, keys.full), BlocksReady(0, 1, (keys.all[1],))]
    ended = events[-1]
    assert isinstance(ended, SequenceEnded)
    assert ended.reasons == (EndReason.PREFILLED,) * 4
    assert (ended.computed_tokens, ended.output_tokens) == (block + 4, 4)
    engine.close(0)
    # Where the first token ends a choice, the prefill says so.
    stop = drawn[1].token_ids
    stops = replace(asked, id=1, sampling=params(seed=3, temperature=1.5, stop_token_ids=stop))
    (output,) = run_local(engine, [stops])
    assert output.ended is not None
    for event, reason in zip(drawn, output.ended.reasons, strict=True):
        assert (reason is EndReason.STOP) == (event.token_ids[0] in stop)
    (single,) = run_local(
        engine, [replace(asked, id=2, sampling=params(seed=3, temperature=1.5, max_tokens=1))]
    )
    assert single.ended is not None
    assert single.ended.reasons == (EndReason.LENGTH,) * 4


def test_speeds_are_known_after_work(engine: Engine) -> None:
    generate(engine, request(0, prompt(4 * engine.info.layout.block_tokens)))
    assert engine.stats().prefill_tokens_per_second > 100
    assert 0 < engine.stats().decode_step_seconds < 1
