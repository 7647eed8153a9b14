"""Sequences that are paused get no tokens, and later those that they would have had."""

import random
from typing import Any

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, Event, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.request.grammar import Grammar
from tests.support.clock import Stopwatch
from tests.support.engine.contract import (
    MAX_SECONDS,
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

UNDER_WAY = 2
"""Tokens that come of steps that had begun when a sequence was paused."""
KINDS_OF_DRAWS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 1.0, "seed": 7},
    "penalties": {
        "temperature": 0.9,
        "seed": 3,
        "repetition_penalty": 1.3,
        "presence_penalty": 1.0,
    },
    "grammar": {"temperature": 1.0, "seed": 2, "grammar": Grammar.of("regex", "[0-9]+")},
    "logprobs": {"temperature": 1.0, "seed": 5, "logprobs": 5},
}


def begin(engine: Engine, asked: SequenceRequest) -> None:
    """Add a sequence and start it, where no other may go on."""
    engine.start(asked.id, admit(engine, asked).cached_tokens)


def run(engine: Engine) -> list[Event]:
    """Start what is admitted, until there is nothing to do; return what happened."""
    events: list[Event] = []
    for event in steps(engine):
        events.append(event)
        if isinstance(event, Admitted):
            engine.start(event.id, event.cached_tokens)
    return events


def of(number: int, events: list[Event]) -> list[int]:
    """Return the tokens of one sequence."""
    return tokens_of([one for one in events if isinstance(one, SampledTokens) and one.id == number])


def run_until(engine: Engine, number: int, tokens: int) -> list[Event]:
    """Step until a sequence has had so many tokens; return all that happened."""
    events: list[Event] = []
    watch, seen = Stopwatch(), 0
    while seen < tokens:
        assert watch.remaining(MAX_SECONDS)
        some = engine.step()
        events += some
        seen += sum(isinstance(one, SampledTokens) and one.id == number for one in some)
    return events


@pytest.mark.parametrize("draws", KINDS_OF_DRAWS.values(), ids=KINDS_OF_DRAWS)
def test_a_paused_sequence_goes_on_as_without_the_pause(
    engine: Engine, draws: dict[str, Any]
) -> None:
    length = 2 * engine.info.layout.block_tokens
    asked = request(0, prompt(30), sampling=params(max_tokens=length, **draws))
    (alone,) = run_local(engine, [asked])
    begin(engine, asked)
    events = run_until(engine, 0, 5)
    engine.pause(0)
    engine.pause(0)
    under_way = drain(engine)
    assert len(tokens_of(under_way)) <= UNDER_WAY
    stats = engine.stats()
    assert (stats.paused, stats.running, stats.waiting) == (1, 0, 0)
    assert not engine.has_work()
    engine.resume(0)
    engine.resume(0)
    events += [*under_way, *drain(engine)]
    assert engine.stats().paused == 0
    sampled = [one for one in events if isinstance(one, SampledTokens)]
    assert [one.position for one in sampled] == list(range(length))
    assert [one.token_ids[0] for one in sampled] == alone.tokens[0]
    if "logprobs" in draws and "logprobs" in engine.info.features:
        told = [one.logprobs[0] for one in sampled]
        assert [len(one.top) for one in told] == [5] * length
        for one, expected in zip(told, alone.logprobs[0], strict=True):
            assert one.logprob == pytest.approx(expected.logprob, abs=1e-3)
    assert isinstance(events[-1], SequenceEnded)
    engine.close(0)
    assert_baseline(engine)


@pytest.mark.parametrize("seed", range(3))
def test_pauses_at_random_change_no_token(tight_engine: Engine, seed: int) -> None:
    """Of choices of one prompt and of others, while pages run out."""
    engine = tight_engine
    block = engine.info.layout.block_tokens
    draw = random.Random(seed)
    asked = [
        request(
            number,
            prompt(2 * block + 5, seed=number // 3),
            choices=(number % 3,),
            sampling=params(temperature=1.0, seed=seed, max_tokens=block + 7),
        )
        for number in range(6)
    ]
    expected = {one.id: generate_choice(engine, one) for one in asked}
    engine.evict_blocks()
    for one in asked:
        engine.add(one)
    sampled: dict[int, list[int]] = {one.id: [] for one in asked}
    paused: set[int] = set()
    ended: set[int] = set()
    pauses = 0
    watch = Stopwatch()
    while len(ended) < len(asked):
        assert watch.remaining(MAX_SECONDS)
        for number in sampled.keys() - ended:
            if number in paused:
                if draw.random() < 0.1 or not engine.has_work():
                    engine.resume(number)
                    paused.discard(number)
            elif draw.random() < 0.05:
                engine.pause(number)
                paused.add(number)
                pauses += 1
        for event in engine.step():
            match event:
                case Admitted():
                    engine.start(event.id, event.cached_tokens)
                case SampledTokens():
                    assert event.position == len(sampled[event.id])
                    sampled[event.id].extend(event.token_ids)
                case SequenceEnded():
                    engine.close(event.id)
                    ended.add(event.id)
                    paused.discard(event.id)
    assert sampled == expected
    assert pauses > 5
    assert_baseline(engine)


def generate_choice(engine: Engine, asked: SequenceRequest) -> list[int]:
    (output,) = run_local(engine, [asked])
    (choice,) = asked.choices
    return output.tokens[choice]


def test_neighbours_of_a_paused_sequence_go_on(tight_engine: Engine) -> None:
    """It is no part of the batch, and its pages are theirs when they need them."""
    engine = tight_engine
    block = engine.info.layout.block_tokens
    pages = engine.stats().total_pages
    length = pages // 2 * block - 3
    slow = request(0, prompt(length), sampling=params(max_tokens=2 * block))
    long = [
        request(number, prompt(length, seed=number), sampling=params(max_tokens=block))
        for number in (1, 2)
    ]
    expected = [generate(engine, one) for one in (slow, *long)]
    engine.evict_blocks()
    begin(engine, slow)
    events = run_until(engine, 0, 3)
    engine.pause(0)
    events += drain(engine)
    # Two of them fill all pages but one or two.
    assert [output.tokens[0] for output in run_local(engine, long[:1])] == expected[1:2]
    assert [output.tokens[0] for output in run_local(engine, long)] == expected[1:]
    assert engine.stats().free_pages == pages, "it kept pages that others were without"
    engine.resume(0)
    events += drain(engine)
    assert tokens_of(events) == expected[0]
    engine.close(0)
    assert_baseline(engine)


def test_paused_sequences_take_no_place_in_the_batch(tight_engine: Engine) -> None:
    """`max_running` is four: eight run, four by four, and all that waited comes to its end."""
    engine = tight_engine
    asked = [request(number, prompt(9, seed=number)) for number in range(8)]
    expected = [generate(engine, one) for one in asked]
    events: list[Event] = []
    for half in (asked[:4], asked[4:]):
        for one in half:
            engine.add(one)
            engine.pause(one.id)
        events += run(engine)
    assert engine.stats().paused == 8
    for one in asked:
        engine.resume(one.id)
    for event in steps(engine):
        events.append(event)
        assert engine.stats().running <= 4
    for one in asked:
        assert of(one.id, events) == expected[one.id]
        engine.close(one.id)
    assert_baseline(engine)


def test_the_prompt_of_a_paused_sequence_is_computed(engine: Engine) -> None:
    """Another one waits for its blocks."""
    block = engine.info.layout.block_tokens
    first, second = (request(number, prompt(3 * block)) for number in range(2))
    expected = generate(engine, first)
    engine.evict_blocks()
    engine.add(first)
    engine.add(second)
    engine.pause(0)
    events = run(engine)
    ended = [event.id for event in events if isinstance(event, SequenceEnded)]
    assert ended == [1]
    engine.resume(0)
    events += drain(engine)
    for number in range(2):
        assert of(number, events) == expected
        engine.close(number)
    assert_baseline(engine)


def test_what_only_reads_a_prompt_is_not_held_back(engine: Engine) -> None:
    engine.add(request(0, prompt(20), prefill_only=True))
    engine.pause(0)
    assert any(isinstance(event, SequenceEnded) for event in run(engine))
    engine.close(0)
    assert_baseline(engine)


def test_a_paused_sequence_can_be_closed(tight_engine: Engine) -> None:
    """Before it was admitted or started, with its pages, and once it gave them up."""
    engine = tight_engine
    engine.add(request(0))
    engine.pause(0)
    engine.close(0)
    assert_baseline(engine)
    admit(engine, request(0))
    engine.pause(0)
    engine.close(0)
    assert_baseline(engine)
    block = engine.info.layout.block_tokens
    longest = prompt(engine.info.context_tokens - 2, seed=4)
    for others_need_its_pages in (False, True):
        begin(engine, request(0, prompt(2 * block + 1), sampling=params(max_tokens=block)))
        run_until(engine, 0, 2)
        engine.pause(0)
        drain(engine)
        if others_need_its_pages:
            generate(engine, request(1, longest, sampling=params(max_tokens=1)))
        engine.close(0)
        assert_baseline(engine)


def test_only_open_sequences_are_paused(engine: Engine) -> None:
    for command in (engine.pause, engine.resume):
        with pytest.raises(KeyError):
            command(0)
