"""Sequences that lose their pages to others go on later, and nobody reads what is not theirs."""

from itertools import groupby

from baton.engine.base import BlockGoneError, Engine
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from tests.support.engine.contract import (
    assert_baseline,
    block_of,
    generate,
    params,
    prompt,
    request,
    same,
    steps,
)


def test_a_preempted_sequence_says_that_its_blocks_are_gone(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    # Both fill all pages, and three tokens later each needs another.
    length = engine.stats().total_pages // 2 * block - 3
    asked = [
        request(number, prompt(length, seed=number), sampling=params(max_tokens=block))
        for number in range(2)
    ]
    expected = [generate(engine, each) for each in asked]
    engine.evict_blocks()
    for each in asked:
        engine.add(each)
    sampled: dict[int, list[int]] = {0: [], 1: []}
    outcomes: list[str] = []
    last = -1
    before = b""
    for event in steps(engine):
        match event:
            case Admitted():
                engine.start(event.id, event.cached_tokens)
            case SampledTokens():
                assert event.position == len(sampled[event.id])
                sampled[event.id].extend(event.token_ids)
            case BlocksReady() if event.id == 1 and "gone" not in outcomes:
                last = event.first_index + len(event.keys) - 1
                before = block_of(engine, 1, last)
            case SequenceEnded() if event.id == 0:
                engine.close(0)
        if last >= 0:
            try:
                again = block_of(engine, 1, last)
            except BlockGoneError:
                outcomes.append("gone")
            else:
                outcomes.append("right" if same(engine, again, before) else "wrong")
    assert [key for key, _ in groupby(outcomes)] == ["right", "gone", "right"]
    assert [sampled[0], sampled[1]] == expected
    engine.close(1)
    assert_baseline(engine)


def test_a_preempted_sequence_can_be_closed(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    length = engine.stats().total_pages // 2 * block - 3
    for number in range(2):
        asked = prompt(length, seed=number)
        engine.add(request(number, asked, sampling=params(max_tokens=block)))
    closed = False
    for event in steps(engine):
        assert not closed or event.id == 0
        if isinstance(event, Admitted):
            engine.start(event.id, event.cached_tokens)
        elif not closed and engine.stats().waiting:
            engine.close(1)
            closed = True
    assert closed
    engine.close(0)
    assert_baseline(engine)
