"""Blocks that are written and read: whose bytes they are, and when they may be touched."""

import numpy as np
import pytest

from baton.engine.base import Engine
from baton.engine.events import SequenceEnded
from baton.engine.local import run_local
from tests.support.engine.contract import (
    admit,
    block_of,
    drain,
    generate,
    params,
    prompt,
    request,
    same,
    tokens_of,
    values,
)

ANY_PREFIX = True
"""Only for engines that continue from any prefix: `paged/test_groups.py` is for the others."""


def blocks_of_prefill(engine: Engine, tokens: tuple[int, ...]) -> list[bytes]:
    """Compute a prompt's KV, and return it with the partial block, which leaves nothing cached."""
    count = -(-len(tokens) // engine.info.layout.block_tokens)
    admit(engine, request(900, tokens, prefill_only=True))
    engine.start(900, 0)
    drain(engine)
    found = [memoryview(bytearray(engine.info.block_bytes)) for _ in range(count)]
    engine.read_blocks(900, range(count), found)
    engine.close(900)
    engine.evict_blocks()
    drain(engine)
    return [bytes(block) for block in found]


def test_written_blocks_are_used_and_not_computed(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 5)
    sampling = params(temperature=1.0)
    expected = generate(engine, request(0, tokens, sampling=sampling))
    engine.evict_blocks()
    blocks = blocks_of_prefill(engine, tokens)
    other = blocks_of_prefill(engine, prompt(3 * block + 5, seed=1))
    for ready in (block, 3 * block, len(tokens)):
        admit(engine, request(1, tokens, sampling=sampling))
        count = -(-ready // block)
        engine.write_blocks(1, range(count), memoryview(b"".join(blocks[:count])))
        engine.start(1, ready)
        events = drain(engine)
        assert tokens_of(events) == expected
        ended = events[-1]
        assert isinstance(ended, SequenceEnded)
        assert ended.cached_tokens == min(ready, len(tokens) - 1)
        assert ended.computed_tokens == len(tokens) - ended.cached_tokens + 7
        assert same(engine, block_of(engine, 1, 2), blocks[2])
        engine.close(1)
        engine.evict_blocks()
        drain(engine)
    # They are what the tokens come from: with the KV of another prompt these are others.
    admit(engine, request(1, tokens, sampling=sampling))
    engine.write_blocks(1, range(4), memoryview(b"".join(other)))
    engine.start(1, len(tokens))
    assert tokens_of(drain(engine)) != expected


def test_written_blocks_are_found_by_the_next(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 5)
    blocks = blocks_of_prefill(engine, tokens)
    admit(engine, request(1, tokens))
    engine.write_blocks(1, [2, 0, 1], memoryview(blocks[2] + blocks[0] + blocks[1]))
    engine.start(1, 3 * block)
    drain(engine)
    assert admit(engine, request(2, tokens)).cached_tokens == 3 * block
    for index in range(3):
        assert same(engine, block_of(engine, 1, index), blocks[index])


def test_ready_tokens_within_a_block_may_be_computed_again(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 5)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    blocks = blocks_of_prefill(engine, tokens)
    admit(engine, request(1, tokens))
    engine.write_blocks(1, range(2), memoryview(b"".join(blocks[:2])))
    engine.start(1, block + 3)
    events = drain(engine)
    assert tokens_of(events) == expected
    assert isinstance(events[-1], SequenceEnded)
    assert events[-1].cached_tokens in (block, block + 3)


def test_a_partial_block_is_zero_behind_its_tokens(tight_engine: Engine) -> None:
    engine = tight_engine
    block = engine.info.layout.block_tokens
    tokens = prompt(block + 4, seed=9)
    _, expected = blocks_of_prefill(engine, tokens)
    most = engine.info.context_tokens - 8
    for number in range(3):
        # Leaves the pages full of other sequences' bytes.
        run_local(engine, [request(0, prompt(most, seed=number))])
    admit(engine, request(1, tokens, prefill_only=True))
    # A fetched block that proved wrong was left where it is.
    engine.write_blocks(1, [1], memoryview(b"\xff" * engine.info.block_bytes))
    engine.start(1, 0)
    drain(engine)
    found = block_of(engine, 1, 1)
    assert same(engine, found, expected)
    numbers = values(engine, found)
    # Wherever an engine has them within the block, no more than the tokens' own are not zero.
    assert 0 < np.count_nonzero(numbers) <= len(numbers) * 4 // block


def test_abandoned_bytes_reach_nobody(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(2 * block + block // 2)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    garbage = memoryview(b"\xff" * engine.info.block_bytes)  # in floats: not a number
    admit(engine, request(1, tokens))
    for index in range(3):
        engine.write_blocks(1, [index], garbage)
    engine.close(1)
    assert generate(engine, request(2, tokens)) == expected
    engine.evict_blocks()
    admit(engine, request(3, tokens))
    for index in range(3):
        engine.write_blocks(3, [index], garbage)
    engine.start(3, 0)
    assert tokens_of(drain(engine)) == expected


def test_bytes_that_are_being_written_reach_nobody_beside(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    asked = [request(number, prompt(4 + 3 * number * block, seed=number)) for number in (1, 2)]
    expected = [generate(engine, each) for each in asked]
    engine.evict_blocks()
    admit(engine, request(0, prompt(12 * block + 8, seed=9)))
    for index in range(12):
        engine.write_blocks(0, [index], memoryview(b"\xff" * engine.info.block_bytes))
    outputs = run_local(engine, asked)
    assert [output.tokens[0] for output in outputs] == expected


def test_blocks_are_read_and_written_only_when_they_may_be(engine: Engine) -> None:
    tokens = engine.info.layout.block_tokens
    size = engine.info.block_bytes
    block = memoryview(bytearray(size))
    with pytest.raises(KeyError):
        engine.read_blocks(0, [0], [block])
    with pytest.raises(KeyError):
        engine.write_blocks(0, [0], block)
    generate(engine, request(0, prompt(tokens)))
    assert admit(engine, request(1, prompt(2 * tokens + 4))).cached_tokens == tokens
    for indexes, data in (([0], block), ([3], block), ([1], block[1:]), ([1, 2], block)):
        with pytest.raises(ValueError):
            engine.write_blocks(1, indexes, data)
    with pytest.raises(ValueError):
        engine.read_blocks(1, [0], [block])
    engine.start(1, tokens)
    with pytest.raises(ValueError):
        engine.write_blocks(1, [1], block)
    engine.read_blocks(1, [0], [block])
    with pytest.raises(ValueError):
        engine.read_blocks(1, [1], [block])
    drain(engine)
    engine.read_blocks(1, [1], [block])
    for indexes, out in (([2], [block]), ([0], [block[1:]]), ([0, 1], [block])):
        with pytest.raises(ValueError):
            engine.read_blocks(1, indexes, out)


def test_nothing_is_written_of_what_is_refused(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 5)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    blocks = blocks_of_prefill(engine, tokens)
    admit(engine, request(1, tokens))
    engine.write_blocks(1, range(3), memoryview(b"".join(blocks[:3])))
    garbage = memoryview(b"\xff" * (2 * engine.info.block_bytes))
    with pytest.raises(ValueError):
        engine.write_blocks(1, [1, 7], garbage)
    with pytest.raises(ValueError):
        engine.write_blocks(1, [1], garbage)
    engine.start(1, 3 * block)
    assert tokens_of(drain(engine)) == expected


def test_blocks_are_filled_where_they_are_or_not_at_all(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    tokens = prompt(3 * block + 5)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    blocks = blocks_of_prefill(engine, tokens)
    admit(engine, request(1, tokens))
    filled: list[int] = []

    def fill(n: int, memory: memoryview) -> None:
        filled.append(n)
        memory[:] = blocks[[2, 0, 1][n]]

    for wrong in ([3 * block], [-1]):
        with pytest.raises(ValueError, match="block"):
            if not engine.fill_blocks(1, wrong, fill):
                raise ValueError("blocks are not in one piece")
    assert not filled
    if engine.fill_blocks(1, [2, 0, 1], fill):
        assert filled == [0, 1, 2]
        engine.start(1, 3 * block)
        assert tokens_of(drain(engine)) == expected
        with pytest.raises(ValueError, match="sequence 1"):
            engine.fill_blocks(1, [2], fill)
    assert len(filled) in (0, 3)


def test_scratch_holds_blocks_that_are_written(engine: Engine) -> None:
    block = engine.info.layout.block_tokens
    size = engine.info.block_bytes
    scratch = engine.scratch
    assert not scratch.readonly
    assert scratch.nbytes >= size
    assert scratch.nbytes % size == 0
    room = min(3, scratch.nbytes // size)
    tokens = prompt(3 * block + 5)
    expected = generate(engine, request(0, tokens))
    engine.evict_blocks()
    blocks = blocks_of_prefill(engine, tokens)
    admit(engine, request(1, tokens))
    scratch[: room * size] = b"".join(blocks[:room])
    engine.write_blocks(1, range(room), scratch[: room * size])
    engine.start(1, room * block)
    assert tokens_of(drain(engine)) == expected
