"""Sequences of higher classes go first, and those that give way to them get the same tokens."""

import random

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.engine.work_order import WorkOrder
from tests.support.clock import Stopwatch
from tests.support.engine.contract import (
    MAX_SECONDS,
    assert_baseline,
    params,
    prompt,
    request,
    tokens_of,
)

BATCH = WorkOrder(priority_class=2)
INTERACTIVE = WorkOrder(priority_class=1)


def alone(engine: Engine, asked: SequenceRequest) -> list[int]:
    """Return a sequence's tokens without others."""
    (output,) = run_local(engine, [asked])
    (choice,) = asked.choices
    return output.tokens[choice]


class Run:
    """All sequences of a test: their tokens as they come, and the order in which they ended."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sampled: dict[int, list[int]] = {}
        self.ended: list[int] = []
        self._watch = Stopwatch()

    def add(self, asked: SequenceRequest) -> None:
        self.sampled[asked.id] = []
        self.engine.add(asked)

    def step(self) -> None:
        assert self._watch.remaining(MAX_SECONDS)
        for event in self.engine.step():
            match event:
                case Admitted():
                    self.engine.start(event.id, event.cached_tokens)
                case SampledTokens():
                    assert event.position == len(self.sampled[event.id])
                    self.sampled[event.id] += tokens_of([event])
                case SequenceEnded():
                    self.engine.close(event.id)
                    self.ended.append(event.id)

    def finish(self) -> None:
        while len(self.ended) < len(self.sampled):
            self.step()


def test_a_higher_class_does_not_wait_for_places(tight_engine: Engine) -> None:
    """`max_running` is four."""
    engine = tight_engine
    length = 2 * engine.info.layout.block_tokens
    lines = [
        request(
            number,
            prompt(9, seed=number),
            sampling=params(temperature=1.0, seed=number, max_tokens=length),
            order=BATCH,
        )
        for number in range(4)
    ]
    urgent = [request(9 + at, prompt(12, seed=9 + at), order=INTERACTIVE) for at in range(2)]
    expected = {one.id: alone(engine, one) for one in (*lines, *urgent)}
    engine.evict_blocks()
    run = Run(engine)
    for one in lines:
        run.add(one)
    while any(len(run.sampled[one.id]) < 2 for one in lines):
        run.step()
    for one in urgent:
        run.add(one)
    before = engine.stats().outranked_total
    while len(run.ended) < len(urgent):
        run.step()
        assert engine.stats().running <= 4
    assert sorted(run.ended) == [9, 10], "what is urgent waited for lines"
    assert engine.stats().outranked_total == before + 2
    run.finish()
    assert run.sampled == expected
    assert_baseline(engine)


def test_a_higher_class_does_not_wait_for_pages(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    length = engine.stats().total_pages // 2 * block - 3
    lines = [
        request(number, prompt(length, seed=number), sampling=params(max_tokens=block), order=BATCH)
        for number in range(2)
    ]
    urgent = request(9, prompt(length, seed=9), sampling=params(max_tokens=4), order=INTERACTIVE)
    expected = {one.id: alone(engine, one) for one in (*lines, urgent)}
    engine.evict_blocks()
    run = Run(engine)
    for one in lines:
        run.add(one)
    while len(run.sampled[0]) < 2:
        run.step()
    run.add(urgent)
    run.finish()
    assert run.ended[-1] != 9, "what is urgent waited until a line had ended"
    assert run.sampled == expected
    assert_baseline(engine)


@pytest.mark.parametrize("seed", range(3))
def test_classes_at_random_change_no_token(tight_engine: Engine, seed: int) -> None:
    """Of sequences that share prompts, which are paused too, while places and pages run out."""
    engine = tight_engine
    block = engine.info.layout.block_tokens
    draw = random.Random(seed)
    asked = [
        request(
            number,
            prompt(2 * block + 5, seed=number // 2),
            sampling=params(temperature=1.0, seed=seed + number % 2, max_tokens=block + 7),
            order=WorkOrder(priority_class=draw.randrange(3)),
            step_seconds=draw.choice([0.0, 1e-6, 1.0]),
        )
        for number in range(10)
    ]
    expected = {one.id: alone(engine, one) for one in asked}
    engine.evict_blocks()
    run, paused = Run(engine), set[int]()
    before = engine.stats().outranked_total
    coming = list(asked)
    while coming or len(run.ended) < len(asked):
        if coming and draw.random() < 0.2:
            run.add(coming.pop())
        for number in sorted(run.sampled.keys() - set(run.ended)):
            if number in paused:
                if draw.random() < 0.1 or not engine.has_work():
                    engine.resume(number)
                    paused.discard(number)
            elif draw.random() < 0.02:
                engine.pause(number)
                paused.add(number)
        run.step()
        paused -= set(run.ended)
    assert run.sampled == expected
    assert engine.stats().outranked_total > before
    assert_baseline(engine)
