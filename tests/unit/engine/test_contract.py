"""What `baton.engine.base` promises, held by every engine."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from baton.engine.base import (
    BlockGoneError,
    Engine,
    QueueFullError,
    SequenceRequest,
    UnsupportedFeatureError,
)
from baton.engine.events import (
    Admitted,
    BlocksEvicted,
    BlocksReady,
    EndReason,
    Event,
    SampledTokens,
    SequenceEnded,
)
from baton.engine.local import run_local
from baton.kv.keys import prompt_keys
from baton.sampling import SamplingParams
from baton.structure import Structure

MakeEngine = Callable[..., Engine]

pytestmark = pytest.mark.parametrize("kind", ["sim", "torch"])

BLOCK = 16


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple((31 * i + 57 * seed + i * i) % 500 for i in range(length))


def request(number: int = 0, tokens: Sequence[int] = prompt(20), **changes: Any) -> SequenceRequest:
    asked = SequenceRequest(
        id=number,
        root=b"root",
        prompt=tokens,
        sampling=params(),
    )
    return replace(asked, **changes)


def params(**fields: Any) -> SamplingParams:
    defaults = {"seed": 1, "temperature": 0, "max_tokens": 8, "ignore_eos": True}
    return SamplingParams(**(defaults | fields))


def admit(engine: Engine, asked: SequenceRequest) -> Admitted:
    engine.add(asked)
    (event,) = [event for event in engine.step() if isinstance(event, Admitted)]
    return event


def same(kind: str, one: memoryview | bytes, other: memoryview | bytes) -> bool:
    """Whether two blocks hold the same KV. Other chunks may round the last bit of a float."""
    if kind == "sim":
        return bytes(one) == bytes(other)
    return np.allclose(np.frombuffer(one), np.frombuffer(other), rtol=1e-9, atol=1e-12)


def drain(engine: Engine) -> list[Event]:
    events = []
    while engine.has_work():
        events.extend(engine.step())
    return events


def generate(engine: Engine, asked: SequenceRequest) -> list[int]:
    (output,) = run_local(engine, [asked])
    return output.tokens[0]


def baseline(engine: Engine) -> None:
    stats = engine.stats()
    assert stats.free_pages == stats.total_pages
    assert stats.open_sequences == stats.running == stats.waiting == 0
    assert stats.pending_prompt_tokens == 0
    assert not engine.has_work()


def test_a_life_from_add_to_close(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    tokens = prompt(40)
    keys = prompt_keys(b"root", tokens, BLOCK)
    assert engine.info.layout.block_tokens == BLOCK
    assert admit(engine, request(7, tokens)) == Admitted(7, 0, keys.all)
    assert not engine.has_work()
    assert engine.stats().running == 1
    engine.start(7, 0)
    events = drain(engine)
    ready = [event for event in events if isinstance(event, BlocksReady)]
    drawn = [event for event in events if isinstance(event, SampledTokens)]
    assert ready[0] == BlocksReady(7, 0, keys.full)
    assert [event.position for event in drawn] == list(range(8))
    # 40 tokens of the prompt and 7 of the output fill two blocks; the eighth has no KV.
    assert len(ready) == 1
    ended = events[-1]
    assert isinstance(ended, SequenceEnded)
    assert ended.reasons == (EndReason.LENGTH,)
    assert (ended.computed_tokens, ended.cached_tokens, ended.output_tokens) == (47, 0, 8)
    assert ended.kv_byte_seconds > 0
    assert ended.queue_seconds >= 0
    assert engine.stats().free_pages == engine.stats().total_pages - 3
    engine.close(7)
    baseline(engine)


def test_blocks_of_the_output_are_reported_as_they_fill(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    tokens = prompt(10)
    admit(engine, request(0, tokens, sampling=params(max_tokens=40)))
    engine.start(0, 0)
    events = drain(engine)
    output = [event.token_ids[0] for event in events if isinstance(event, SampledTokens)]
    ready = [event for event in events if isinstance(event, BlocksReady)]
    assert [event.first_index for event in ready] == [0, 1, 2]
    named = [key for event in ready for key in event.keys]
    assert tuple(named) == prompt_keys(b"root", [*tokens, *output], BLOCK).full
    engine.close(0)


def test_the_next_turn_finds_prompt_and_answer(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    first = prompt(30)
    answer = generate(engine, request(0, first, sampling=params(max_tokens=40)))
    turn = (*first, *answer, *prompt(9, seed=3))
    before = engine.stats()
    (output,) = run_local(engine, [request(1, turn)])
    assert output.ended is not None
    # The last token of the answer has no KV: 69 tokens have, which is 4 blocks.
    assert output.ended.cached_tokens == 64
    assert engine.stats().cached_tokens - before.cached_tokens == 64
    assert engine.stats().computed_tokens - before.computed_tokens == len(turn) - 64 + 7


def test_other_roots_share_nothing(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    generate(engine, request(0, prompt(64)))
    assert admit(engine, request(1, prompt(64), root=b"another")).cached_tokens == 0
    assert admit(engine, request(2, prompt(64))).cached_tokens == 64


def test_a_stop_token_ends_the_output_and_is_part_of_it(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    free = generate(engine, request())
    stop = free[3]
    at = free.index(stop)
    (output,) = run_local(engine, [request(sampling=params(stop_token_ids=(stop,)))])
    assert output.tokens[0] == free[: at + 1]
    assert output.ended is not None
    assert output.ended.reasons == (EndReason.STOP,)


def test_min_tokens_keeps_stop_tokens_away(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    stop = (generate(engine, request())[0],)
    (output,) = run_local(engine, [request(sampling=params(stop_token_ids=stop, min_tokens=5))])
    assert stop[0] not in output.tokens[0][:5]
    assert len(output.tokens[0]) >= 5


def test_where_every_token_is_forbidden_one_is_sampled_and_ends_nothing(
    make_engine: MakeEngine, kind: str
) -> None:
    engine = make_engine(kind)
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
    baseline(engine)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_allowed_tokens_are_sampled(
    make_engine: MakeEngine, kind: str, temperature: float
) -> None:
    engine = make_engine(kind)
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
    if kind == "torch":
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


def test_the_context_ends_an_output(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, context_tokens=64)
    assert engine.info.context_tokens == 64
    (output,) = run_local(engine, [request(0, prompt(50), sampling=params(max_tokens=1000))])
    assert len(output.tokens[0]) == 14
    assert output.ended is not None
    assert output.ended.reasons == (EndReason.LENGTH,)
    (last,) = run_local(engine, [request(0, prompt(63))])
    assert len(last.tokens[0]) == 1
    with pytest.raises(ValueError, match="64"):
        engine.add(request(0, prompt(64)))


def test_a_prefill_samples_each_choice_once(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    asked = request(
        0,
        prompt(20),
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
    keys = prompt_keys(b"root", asked.prompt, BLOCK)
    ready = [event for event in events if isinstance(event, BlocksReady)]
    assert ready == [BlocksReady(0, 0, keys.full), BlocksReady(0, 1, (keys.all[1],))]
    ended = events[-1]
    assert isinstance(ended, SequenceEnded)
    assert ended.reasons == (EndReason.PREFILLED,) * 4
    assert (ended.computed_tokens, ended.output_tokens) == (20, 4)
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


def test_a_partial_block_is_zero_behind_its_tokens(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, kv_bytes=256 * 256 if kind == "sim" else 2**20)
    pages = engine.stats().total_pages
    for number in range(3):
        # Leaves the pages full of other sequences' bytes.
        run_local(engine, [request(0, prompt(16 * pages // 3, seed=number))])
    admit(engine, request(1, prompt(20, seed=9), prefill_only=True))
    # A fetched block that proved wrong was left where it is.
    engine.write_blocks(1, [1], memoryview(b"\xff" * engine.info.block_bytes))
    engine.start(1, 0)
    drain(engine)
    block = memoryview(bytearray(engine.info.block_bytes))
    engine.read_blocks(1, [1], [block])
    layers = engine.info.layout.layers * 2 if kind == "torch" else 1
    part = len(block) // layers
    for layer in range(layers):
        rest = bytes(block[layer * part + part * 4 // BLOCK : (layer + 1) * part])
        assert not any(rest)
        assert any(block[layer * part : layer * part + part * 4 // BLOCK])


def test_abandoned_bytes_reach_nobody(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    expected = generate(engine, request(0, prompt(40)))
    engine.evict_blocks()
    garbage = memoryview(b"\xff" * engine.info.block_bytes)  # in floats: not a number
    admit(engine, request(1, prompt(40)))
    for index in range(3):
        engine.write_blocks(1, [index], garbage)
    engine.close(1)
    assert generate(engine, request(2, prompt(40))) == expected
    engine.evict_blocks()
    admit(engine, request(3, prompt(40)))
    for index in range(3):
        engine.write_blocks(3, [index], garbage)
    engine.start(3, 0)
    events = drain(engine)
    assert [e.token_ids[0] for e in events if isinstance(e, SampledTokens)] == expected


def test_bytes_that_are_being_written_reach_nobody_beside(
    make_engine: MakeEngine, kind: str
) -> None:
    engine = make_engine(kind)
    asked = [request(number, prompt(4 + 50 * number, seed=number)) for number in range(1, 3)]
    expected = [generate(engine, each) for each in asked]
    engine = make_engine(kind)
    admit(engine, request(0, prompt(200, seed=9)))
    for index in range(12):
        engine.write_blocks(0, [index], memoryview(b"\xff" * engine.info.block_bytes))
    outputs = run_local(engine, asked)
    assert [output.tokens[0] for output in outputs] == expected


def test_no_more_run_than_may(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, max_running=3)
    for number in range(8):
        engine.add(request(number, prompt(20, seed=number)))
    most = 0
    ended = 0
    while ended < 8:
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, 0)
            if isinstance(event, SequenceEnded):
                engine.close(event.id)
                ended += 1
        most = max(most, engine.stats().running)
    assert most == 3
    baseline(engine)


def test_equal_prompts_are_computed_once(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, chunk_tokens=32)
    outputs = run_local(engine, [request(i, prompt(100)) for i in range(5)])
    assert len({tuple(output.tokens[0]) for output in outputs}) == 1
    ends = [output.ended for output in outputs if output.ended is not None]
    assert sorted(end.cached_tokens for end in ends) == [0, 96, 96, 96, 96]


def test_an_equal_prompt_goes_on_alone_when_the_first_is_closed(
    make_engine: MakeEngine, kind: str
) -> None:
    engine = make_engine(kind)
    expected = generate(engine, request(0, prompt(100)))
    engine.evict_blocks()
    drain(engine)
    admit(engine, request(1, prompt(100)))
    engine.add(request(2, prompt(100)))
    assert drain(engine) == []
    assert engine.stats().waiting == 1
    engine.close(1)
    (event,) = engine.step()
    assert isinstance(event, Admitted)
    assert event.cached_tokens == 0
    engine.start(2, 0)
    assert [e.token_ids[0] for e in drain(engine) if isinstance(e, SampledTokens)] == expected


def test_what_nobody_used_for_a_while_can_be_let_go(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    keys = prompt_keys(b"root", prompt(64), BLOCK).full
    generate(engine, request(0, prompt(64)))
    time.sleep(0.05)
    listed = engine.idle_blocks(0.05)
    assert [block.key for block in listed] == list(reversed(keys))
    assert [block.previous for block in listed] == [*reversed(keys[:-1]), b""]
    assert engine.idle_blocks(60) == []
    # A second sequence holds the first two blocks: they are used, whatever the clock says.
    admit(engine, request(1, prompt(40)))
    assert [block.key for block in engine.idle_blocks(0.05)] == [keys[3], keys[2]]
    assert engine.evict_blocks(keys, 60) == 0
    assert engine.evict_blocks([*keys, b"unknown"], 0.05) == 2
    (event,) = [event for event in drain(engine) if isinstance(event, BlocksEvicted)]
    assert sorted(event.keys) == sorted(keys[2:])
    engine.close(1)
    assert admit(engine, request(2, prompt(64))).cached_tokens == 32
    engine.close(2)
    baseline(engine)


def test_evictions_are_told(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    tokens = prompt(64)
    keys = prompt_keys(b"root", tokens, BLOCK).full
    generate(engine, request(0, tokens))
    assert engine.evict_blocks() == 4
    (event,) = drain(engine)
    assert isinstance(event, BlocksEvicted)
    assert sorted(event.keys) == sorted(keys)
    tight = make_engine(kind, kv_bytes=256 * engine.info.block_bytes)
    told: set[bytes] = set()
    for number in (*range(6), *range(6)):
        asked = request(number, prompt(900, seed=number))
        named = prompt_keys(b"root", asked.prompt, BLOCK).full
        # What the events so far say is cached is what is found.
        expected = next((i for i, key in enumerate(named) if key not in told), len(named))
        found = finish(tight, asked, told)
        assert found == expected * BLOCK
    assert len(told) < 256
    baseline(tight)


def finish(engine: Engine, asked: SequenceRequest, told: set[bytes]) -> int:
    """Run a request, keep in `told` which blocks are cached; answers the tokens that it found."""
    found = -1
    engine.add(asked)
    while True:
        for event in engine.step():
            match event:
                case Admitted():
                    found = event.cached_tokens
                    engine.start(event.id, found)
                case BlocksReady():
                    told.update(event.keys)
                case BlocksEvicted():
                    told.difference_update(event.keys)
                case SequenceEnded():
                    engine.close(event.id)
                    return found


def test_what_cannot_be_is_refused_and_leaves_nothing(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, max_waiting=2)
    refused = [
        request(tokens=()),
        request(tokens=(512,)),
        request(tokens=(-1,)),
        request(tokens=prompt(4096)),
        request(choices=(0, 1)),
        request(choices=()),
        request(output=(3,) * 8),
        request(output=(512,)),
        request(sampling=params(logit_bias={512: 1.0})),
    ]
    for asked in refused:
        with pytest.raises(ValueError):
            engine.add(asked)
    engine.add(request(0))
    with pytest.raises(ValueError, match="open already"):
        engine.add(request(0))
    engine.add(request(1))
    with pytest.raises(QueueFullError):
        engine.add(request(2))
    engine.close(0)
    engine.close(1)
    with pytest.raises(KeyError):
        engine.close(1)
    baseline(engine)


@pytest.mark.parametrize(
    ("feature", "asked"),
    [
        ("adapters", request(adapter="unknown")),
        ("structured_output", request(structure=Structure("regex", "[a-z]*"))),
    ],
)
def test_what_an_engine_cannot_do_is_refused_by_name(
    make_engine: MakeEngine, kind: str, feature: str, asked: SequenceRequest
) -> None:
    engine = make_engine(kind)
    assert feature not in engine.info.features
    with pytest.raises(UnsupportedFeatureError) as refused:
        engine.add(asked)
    assert refused.value.feature == feature
    baseline(engine)


def test_start_takes_only_what_fits_the_sequence(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind)
    with pytest.raises(KeyError):
        engine.start(0, 0)
    engine.add(request(0, prompt(40), output=(1, 2)))
    with pytest.raises(ValueError, match="waiting"):
        engine.start(0, 0)
    engine.step()
    wrong: list[tuple[int, tuple[int, ...]]] = [
        (-1, ()),
        (43, ()),
        (0, (1, 3)),
        (0, (1, 2, 512)),
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


def test_blocks_are_read_and_written_only_when_they_may_be(
    make_engine: MakeEngine, kind: str
) -> None:
    engine = make_engine(kind)
    size = engine.info.block_bytes
    block = memoryview(bytearray(size))
    with pytest.raises(KeyError):
        engine.read_blocks(0, [0], [block])
    generate(engine, request(0, prompt(16)))
    assert admit(engine, request(1, prompt(40))).cached_tokens == 16
    with pytest.raises(ValueError):
        engine.write_blocks(1, [0], block)
    with pytest.raises(ValueError):
        engine.write_blocks(1, [3], block)
    with pytest.raises(ValueError):
        engine.write_blocks(1, [1], block[1:])
    with pytest.raises(ValueError):
        engine.read_blocks(1, [0], [block])
    engine.start(1, 16)
    with pytest.raises(ValueError):
        engine.write_blocks(1, [1], block)
    engine.read_blocks(1, [0], [block])
    with pytest.raises(ValueError):
        engine.read_blocks(1, [1], [block])
    drain(engine)
    engine.read_blocks(1, [1], [block])
    with pytest.raises(ValueError):
        engine.read_blocks(1, [2], [block])
    with pytest.raises(ValueError):
        engine.read_blocks(1, [0], [block[1:]])


def test_a_preempted_sequence_says_that_its_blocks_are_gone(
    make_engine: MakeEngine, kind: str
) -> None:
    size = make_engine(kind).info.block_bytes
    engine = make_engine(kind, kv_bytes=256 * size, chunk_tokens=64)
    for number in range(2):
        asked = request(number, prompt(2000, seed=number), sampling=params(max_tokens=250))
        engine.add(asked)
    block = memoryview(bytearray(size))
    again = memoryview(bytearray(size))
    outcomes: list[str] = []
    ended: set[int] = set()
    last = -1
    while 1 not in ended:
        for event in engine.step():
            match event:
                case Admitted():
                    engine.start(event.id, event.cached_tokens)
                case BlocksReady() if event.id == 1 and "gone" not in outcomes:
                    last = event.first_index + len(event.keys) - 1
                    engine.read_blocks(1, [last], [block])
                case SequenceEnded():
                    ended.add(event.id)
                    if event.id == 0:
                        engine.close(0)
        if last >= 0:
            try:
                engine.read_blocks(1, [last], [again])
            except BlockGoneError:
                # It waits, or runs again and has not come to this block yet.
                outcomes.append("gone" if engine.stats().waiting else "not yet")
            else:
                outcomes.append("right" if same(kind, again, block) else "wrong")
    runs = [key for key, _ in groupby(outcomes)]
    assert runs == ["right", "gone", "not yet", "right"]
    engine.close(1)
    baseline(engine)


def test_threads_copy_while_the_engine_steps(make_engine: MakeEngine, kind: str) -> None:
    """A reader gets a block's own bytes or an error, whatever is closed and taken meanwhile."""
    engine = make_engine(kind, kv_bytes=256 * make_engine(kind).info.block_bytes)
    size = engine.info.block_bytes
    truth: dict[bytes, bytes] = {}
    ready: dict[int, tuple[bytes, ...]] = {}
    counts = {"right": 0, "gone": 0}
    wrong: list[bytes] = []
    stop = threading.Event()

    def read() -> None:
        block = memoryview(bytearray(size))
        while not stop.is_set():
            for number, keys in list(ready.items()):
                try:
                    engine.read_blocks(number, [0], [block])
                except (KeyError, BlockGoneError):
                    counts["gone"] += 1
                    continue
                if not same(kind, block, truth.setdefault(keys[0], bytes(block))):
                    wrong.append(keys[0])
                counts["right"] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        draw = random.Random(5)
        number = 0
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline or counts["right"] <= 20:
            while engine.stats().open_sequences < 8:
                tokens = prompt(draw.randrange(300, 700), seed=draw.randrange(20))
                engine.add(request(number, tokens, sampling=params(max_tokens=60)))
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


@pytest.mark.parametrize("seed", range(4))
def test_after_any_life_everything_is_back(make_engine: MakeEngine, kind: str, seed: int) -> None:
    engine = make_engine(kind, kv_bytes=256 * make_engine(kind).info.block_bytes, max_running=6)
    draw = random.Random(seed)
    open_now: set[int] = set()
    loading: dict[int, Admitted] = {}
    ended: set[int] = set()
    positions: dict[int, int] = {}
    for number in range(300):
        action = draw.random()
        if action < 0.3 and len(open_now) < 24:
            length = draw.choice([1, 15, 16, 17, 200, 900])
            limit = params(max_tokens=draw.choice([1, 20, 200]))
            engine.add(
                request(
                    number,
                    prompt(length, seed=draw.randrange(3)),
                    sampling=limit,
                    prefill_only=draw.random() < 0.2,
                )
            )
            open_now.add(number)
        elif action < 0.4 and open_now:
            victim = draw.choice(sorted(open_now))
            engine.close(victim)
            open_now.discard(victim)
            loading.pop(victim, None)
        elif action < 0.6 and loading:
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
    assert engine.stats().open_sequences == len(open_now)
    assert len(ended) > 5
    for number in sorted(open_now):
        engine.close(number)
    drain(engine)
    baseline(engine)


def test_speeds_are_known_after_work(make_engine: MakeEngine, kind: str) -> None:
    engine = make_engine(kind, sim_time_scale=0.1)
    assert engine.stats().prefill_tokens_per_second == 0
    assert engine.stats().decode_step_seconds == 0
    engine.warm_up()
    assert engine.stats().computed_tokens == 0
    generate(engine, request(0, prompt(300)))
    assert engine.stats().prefill_tokens_per_second > 100
    assert 0 < engine.stats().decode_step_seconds < 1
