"""What stays in the prefix cache, what leaves it, and that both are told."""

import time

from baton.engine.base import Engine
from baton.engine.events import BlocksEvicted
from baton.kv.keys import prompt_keys
from tests.support.engine.contract import (
    admit,
    assert_baseline,
    drain,
    finish,
    generate,
    prompt,
    request,
)


def test_what_nobody_used_for_a_while_can_be_let_go(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(4 * block + 1)
    keys = prompt_keys(b"root", tokens, block).full
    generate(engine, request(0, tokens))
    time.sleep(0.05)
    listed = engine.idle_blocks(0.05)
    assert [found.key for found in listed] == list(reversed(keys))
    assert [found.previous for found in listed] == [*reversed(keys[:-1]), b""]
    assert engine.idle_blocks(60) == []
    # A second sequence holds the first two blocks: they are used, whatever the clock says.
    admit(engine, request(1, tokens[: 2 * block + 1]))
    assert [found.key for found in engine.idle_blocks(0.05)] == [keys[3], keys[2]]
    assert engine.evict_blocks(keys, 60) == 0
    assert engine.evict_blocks([*keys, b"unknown"], 0.05) == 2
    evicted = [event for event in drain(engine) if isinstance(event, BlocksEvicted)]
    assert sorted(evicted[0].keys) == sorted(keys[2:])
    engine.close(1)
    assert admit(engine, request(2, tokens)).cached_tokens == 2 * block
    engine.close(2)
    assert_baseline(engine)


def test_the_longest_idle_come_first(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    for number in range(3):
        generate(engine, request(0, prompt(2 * block + 1, seed=number)))
    # The first is used again, and idle for the shortest time from then on.
    generate(engine, request(0, prompt(2 * block + 1, seed=0)))
    listed = [found.key for found in engine.idle_blocks(0)]
    expected = []
    for number in (1, 2, 0):
        keys = prompt_keys(b"root", prompt(2 * block + 1, seed=number), block).full
        expected.extend(reversed(keys))
    assert listed == expected


def test_evictions_are_told(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(4 * block + 1)
    keys = prompt_keys(b"root", tokens, block).full
    generate(engine, request(0, tokens))
    drain(engine)
    assert engine.evict_blocks(keys[2:]) == 2
    assert engine.evict_blocks() == 2
    assert engine.evict_blocks([b"unknown"]) == 0
    evicted = drain(engine)
    assert all(isinstance(event, BlocksEvicted) for event in evicted)
    first = [event for event in evicted if isinstance(event, BlocksEvicted) and not event.group]
    assert sorted(key for event in first for key in event.keys) == sorted(keys)
    assert engine.evict_blocks() == 0


def test_what_the_events_say_is_cached_is_found(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    length = engine.stats().total_pages * 7 // 32 * block + 4
    told: set[bytes] = set()
    for number in (*range(6), *range(6)):
        tokens = prompt(length, seed=number)
        named = prompt_keys(b"root", tokens, block).full
        expected = next((i for i, key in enumerate(named) if key not in told), len(named))
        assert finish(engine, request(number, tokens), told) == expected * block
    assert len(told) <= engine.stats().total_pages


def test_a_block_that_is_computed_again_after_its_eviction_is_told_again(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 4)
    keys = set(prompt_keys(b"root", tokens, block).full)
    told: set[bytes] = set()
    finish(engine, request(0, tokens), told)
    assert told == keys
    # Told only now, and before the blocks are ready again.
    engine.evict_blocks()
    assert finish(engine, request(1, tokens), told) == 0
    assert told == keys
