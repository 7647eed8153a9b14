"""Whatever sequences do, in whatever order, and whoever copies meanwhile."""

import random
import threading

import pytest

from baton.engine.base import BlockGoneError, Engine, QueueFullError
from baton.engine.events import (
    Admitted,
    BlocksEvicted,
    BlocksReady,
    SampledTokens,
    SequenceEnded,
)
from tests.support.clock import PATIENCE_SECONDS, Stopwatch
from tests.support.engine.contract import (
    MAX_ID,
    assert_baseline,
    drain,
    params,
    prompt,
    request,
    same,
)

ENDED = 5
"""Sequences that come to their ends, at the least, in a life that proves something."""


def test_threads_copy_while_the_engine_steps(tight_engine: Engine) -> None:
    """A reader gets a block's own bytes or an error, whatever is closed and taken meanwhile."""
    engine = tight_engine
    block_tokens = engine.info.layout.block_tokens
    pages = engine.stats().total_pages
    truth: dict[bytes, bytes] = {}
    ready: dict[int, tuple[bytes, ...]] = {}
    counts = {"right": 0, "gone": 0}
    wrong: list[bytes] = []
    stop = threading.Event()

    def read() -> None:
        block = memoryview(bytearray(engine.info.object_bytes[0]))
        while not stop.is_set():
            for number, keys in list(ready.items()):
                try:
                    engine.read_blocks(number, [0], [block])
                except (KeyError, BlockGoneError):
                    counts["gone"] += 1
                    continue
                if not same(engine, bytes(block), truth.setdefault(keys[0], bytes(block))):
                    wrong.append(keys[0])
                counts["right"] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        draw = random.Random(5)
        number = 0
        watch = Stopwatch()
        while watch.elapsed < 0.5 or counts["right"] <= 20:
            assert watch.remaining(PATIENCE_SECONDS)
            while engine.stats().open_sequences < 8:
                length = draw.randrange(pages * block_tokens // 8, pages * block_tokens // 3)
                asked = prompt(length, seed=draw.randrange(20))
                limit = params(max_tokens=2 * block_tokens)
                engine.add(request(number % 1000, asked, sampling=limit))
                number += 1
            for event in engine.step():
                match event:
                    case Admitted():
                        engine.start(event.id, event.cached_tokens)
                    case BlocksReady() if event.first_index == 0:
                        ready[event.id] = event.keys
                    case SequenceEnded():
                        engine.close(event.id)
                        ready.pop(event.id, None)
    finally:
        stop.set()
        reader.join()
    assert not wrong


@pytest.mark.parametrize("seed", range(3))
def test_after_any_life_everything_is_back(tight_engine: Engine, seed: int) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    lengths = [1, block - 1, block, block + 1, 4 * block + 3, 14 * block]
    draw = random.Random(seed)
    open_now: set[int] = set()
    loading: dict[int, Admitted] = {}
    ended: set[int] = set()
    positions: dict[int, int] = {}
    refused = 0
    # Engines differ in how many steps a sequence takes: it goes on until some have ended.
    for number in range(MAX_ID):
        if number >= 300 and len(ended) > ENDED:
            break
        action = draw.random()
        if action < 0.3:
            asked = request(
                number,
                prompt(draw.choice(lengths), seed=draw.randrange(3)),
                sampling=params(max_tokens=draw.choice([1, 20, 2 * block])),
                prefill_only=draw.random() < 0.2,
            )
            try:
                engine.add(asked)
            except QueueFullError:
                refused += 1
            else:
                open_now.add(number)
        elif action < 0.4 and open_now:
            victim = draw.choice(sorted(open_now))
            engine.close(victim)
            open_now.discard(victim)
            loading.pop(victim, None)
        elif action < 0.5 and open_now:
            chosen = draw.choice(sorted(open_now))
            (engine.pause if draw.random() < 0.5 else engine.resume)(chosen)
        elif action < 0.65 and loading:
            chosen = draw.choice(sorted(loading))
            engine.start(chosen, loading.pop(chosen).cached_tokens)
        else:
            for event in engine.step():
                if isinstance(event, BlocksEvicted):
                    continue
                assert event.id in open_now
                match event:
                    case Admitted():
                        loading[event.id] = event
                    case SampledTokens():
                        assert event.position == positions.get(event.id, 0)
                        positions[event.id] = event.position + 1
                    case SequenceEnded():
                        assert event.id not in ended
                        ended.add(event.id)
    assert len(ended) > ENDED
    assert engine.stats().open_sequences == len(open_now)
    for number in sorted(open_now):
        engine.close(number)
    drain(engine)
    assert_baseline(engine)
