"""What may be added, who is admitted when, and what `start` takes."""

import pytest

from baton.engine.base import PICTURES, Engine, QueueFullError, UnsupportedFeatureError
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.engine.work_order import WorkOrder
from baton.kv.keys import PlaceholderRun
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    drain,
    generate,
    params,
    prompt,
    request,
    steps,
    tokens_of,
)


def test_no_more_run_than_may(tight_engine: Engine) -> None:
    engine = tight_engine
    for number in range(8):
        engine.add(request(number, prompt(20, seed=number)))
    most = 0
    ended = 0
    for event in steps(engine):
        most = max(most, engine.stats().running)
        if isinstance(event, Admitted):
            engine.start(event.id, 0)
        if isinstance(event, SequenceEnded):
            engine.close(event.id)
            ended += 1
    assert (most, ended) == (4, 8)
    assert_baseline(engine)


def test_those_that_wait_are_computed_in_their_order_and_to_the_same_tokens(
    tight_engine: Engine,
) -> None:
    engine = tight_engine
    keys = [0.0, 0.0, 0.0, 0.0, 3.0, 1.0, 2.0]
    asked = [
        request(
            number,
            prompt(20, seed=number),
            sampling=params(max_tokens=4 + number),
            order=WorkOrder(key=key),
        )
        for number, key in enumerate(keys)
    ]
    resumed = request(7, prompt(20, seed=7), output=(3,), order=WorkOrder(tier=9))
    alone = [generate(engine, one) for one in (*asked, resumed)]
    engine.evict_blocks()
    drain(engine)
    for one in (*asked, resumed):
        engine.add(one)
    order: list[int] = []
    outputs: dict[int, list[int]] = {}
    for event in steps(engine):
        if isinstance(event, Admitted):
            order.append(event.id)
            engine.start(event.id, event.cached_tokens)
        if isinstance(event, SampledTokens):
            outputs.setdefault(event.id, []).extend(event.token_ids)
        if isinstance(event, SequenceEnded):
            engine.close(event.id)
    # As many as may run are there at once, in their order.
    assert [one for one in order if one in (4, 5, 6)] == [5, 6, 4]
    assert order.index(7) < order.index(5)
    assert [outputs[number] for number in range(8)] == alone


def test_equal_prompts_are_computed_once(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    outputs = run_local(engine, [request(i, prompt(6 * block + 4)) for i in range(5)])
    assert len({tuple(output.tokens[0]) for output in outputs}) == 1
    ends = [output.ended for output in outputs if output.ended is not None]
    assert sorted(end.cached_tokens for end in ends) == [0, *[6 * block] * 4]


def test_an_equal_prompt_goes_on_alone_when_the_first_is_closed(engine: Engine) -> None:
    tokens = prompt(6 * engine.info.layout.block_tokens + 4)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    drain(engine)
    admit(engine, request(1, tokens))
    engine.add(request(2, tokens))
    assert drain(engine) == []
    assert engine.stats().waiting == 1
    engine.close(1)
    (event,) = drain(engine)
    assert isinstance(event, Admitted)
    assert event.cached_tokens == 0
    engine.start(2, 0)
    assert tokens_of(drain(engine)) == expected


def test_a_prefill_does_not_wait_for_a_stream_that_loads(engine: Engine) -> None:
    tokens = prompt(2 * engine.info.layout.block_tokens + 4)
    admit(engine, request(0, tokens))
    # Which may be waiting for this very prefill's KV.
    admit(engine, request(1, tokens, prefill_only=True))
    engine.start(1, 0)
    assert isinstance(drain(engine)[-1], SequenceEnded)


def test_what_cannot_be_is_refused_and_leaves_nothing(tight_engine: Engine) -> None:
    engine = tight_engine
    vocab = engine.info.vocab_tokens
    refused = [
        request(tokens=()),
        request(tokens=(vocab,)),
        request(tokens=(-1,)),
        request(tokens=prompt(engine.info.context_tokens)),
        request(choices=(0, 1)),
        request(choices=()),
        request(output=(3,) * 8),
        request(output=(vocab,)),
        request(sampling=params(logit_bias={vocab: 1.0})),
    ]
    for asked in refused:
        with pytest.raises(ValueError):
            engine.add(asked)
    engine.add(request(0))
    with pytest.raises(ValueError, match="open already"):
        engine.add(request(0))
    most = engine.info.max_running + engine.info.max_waiting
    for number in range(1, most):
        engine.add(request(number))
    with pytest.raises(QueueFullError):
        engine.add(request(most))
    for number in range(most):
        engine.close(number)
    with pytest.raises(KeyError):
        engine.close(1)
    assert_baseline(engine)


def test_what_an_engine_cannot_do_is_refused_by_name(engine: Engine) -> None:
    if engine.info.adapter_limits is None:
        with pytest.raises(UnsupportedFeatureError) as refused:
            engine.add(request(adapter="unknown"))
        assert refused.value.feature == "adapters"
    else:
        with pytest.raises(ValueError, match="'unknown' does not exist"):
            engine.add(request(adapter="unknown"))
    assert PICTURES not in engine.info.features
    with pytest.raises(UnsupportedFeatureError) as refused:
        engine.add(request(runs=(PlaceholderRun(0, 1, bytes(32)),)))
    assert refused.value.feature == PICTURES
    assert_baseline(engine)


def test_start_takes_only_what_fits_the_sequence(engine: Engine) -> None:
    length = 2 * engine.info.layout.block_tokens + 8
    with pytest.raises(KeyError):
        engine.start(0, 0)
    engine.add(request(0, prompt(length), output=(1, 2)))
    with pytest.raises(ValueError, match="waiting"):
        engine.start(0, 0)
    drain(engine)
    wrong: list[tuple[int, tuple[int, ...]]] = [
        (-1, ()),
        (length + 3, ()),
        (0, (1, 3)),
        (0, (1, 2, engine.info.vocab_tokens)),
        (0, (1, 2, 3, 4, 5, 6, 7, 8)),
    ]
    for ready, output in wrong:
        with pytest.raises(ValueError):
            engine.start(0, ready, output)
    engine.start(0, 0, (1, 2, 3))
    with pytest.raises(ValueError, match="running"):
        engine.start(0, 0)
    positions = [event.position for event in drain(engine) if isinstance(event, SampledTokens)]
    assert positions == [3, 4, 5, 6, 7]


def test_output_that_came_before_the_start_is_gone_on_from(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(block + 4)
    sampling = params(temperature=1.0, max_tokens=2 * block)
    whole = generate(engine, request(0, tokens, sampling=sampling))
    engine.evict_blocks()
    for known, done in ((0, 1), (2, 3), (3, block + 1)):
        asked = request(1, tokens, sampling=sampling, output=tuple(whole[:known]))
        cached = admit(engine, asked).cached_tokens
        engine.start(1, cached, whole[:done])
        assert tokens_of(drain(engine)) == whole[done:]
        engine.close(1)
