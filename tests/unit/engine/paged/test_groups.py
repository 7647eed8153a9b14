"""Groups of layers: from every cut the same tokens, by what it needs and no more."""

import random
from dataclasses import replace

import pytest

from baton.engine.base import BlockGoneError, Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.engine.sim.pages import SimPages
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
from tests.support.engine.cuts import (
    GROUP_TABLES,
    compute_objects,
    continue_from,
    names_of,
    read_objects,
    rules_of,
    write_missing,
)
from tests.unit.engine.conftest import MakeEngine

BLOCK = 16
LENGTHS = (1, 15, 16, 17, 33, 48, 64, 65, 81, 97)
"""Prompts that end on, before and behind windows, chunks and blocks."""


@pytest.fixture(params=GROUP_TABLES)
def engine(request: pytest.FixtureRequest, make_engine: MakeEngine) -> Engine:
    return make_engine("sim", sim_groups=request.param)


def cuts_of(engine: Engine, length: int) -> list[int]:
    return [cut for cut in rules_of(engine).allowed(lambda _g, _b: True, length - 1) if cut]


def test_from_every_cut_come_the_tokens_of_the_prompt_alone(engine: Engine) -> None:
    for length in LENGTHS:
        tokens = prompt(length)
        expected = generate(engine, request(0, tokens))
        engine.evict_blocks()
        for cut in cuts_of(engine, length):
            objects = compute_objects(engine, tokens, [cut])
            asked = request(1, tokens, cut_tokens=cut)
            events = continue_from(engine, asked, objects)
            assert tokens_of(events) == expected, (length, cut)
            ended = events[-1]
            assert isinstance(ended, SequenceEnded)
            assert cut <= ended.cached_tokens <= length - 1
            if cut % BLOCK == 0:  # what was written is found as if it had been computed
                assert admit(engine, request(2, tokens)).cached_tokens >= cut
                engine.close(2)
            engine.close(1)
            engine.evict_blocks()
            drain(engine)
    assert_baseline(engine)


def test_a_cut_asks_for_what_it_needs_and_is_wrong_without_it(engine: Engine) -> None:
    # The token behind the cut is the one that is sampled from: it reads all that the cut needs.
    for cut in {rules_of(engine).floor(cut) for cut in (80, 96, 101)}:
        tokens = prompt(cut + 1)
        expected = generate(engine, request(0, tokens))
        engine.evict_blocks()
        objects = compute_objects(engine, tokens, [cut])
        admitted = admit(engine, request(1, tokens, cut_tokens=cut))
        asked = [(g, b) for g, blocks in enumerate(admitted.missing) for b in blocks]
        assert asked == names_of(engine, [cut])
        with pytest.raises(ValueError, match="ready_tokens is 0"):
            engine.start(1, 0)
        for group, blocks in enumerate(rules_of(engine).needed(cut)):
            data = memoryview(bytes(engine.info.object_bytes[group]))
            for block in {*range(7)} - {*blocks}:
                with pytest.raises(ValueError, match="is not among"):
                    engine.write_blocks(1, [block], data, group)
        engine.close(1)
        for name in asked:
            wrong = {**objects, name: bytes(byte ^ 1 for byte in objects[name])}
            events = continue_from(engine, request(1, tokens, cut_tokens=cut), wrong)
            assert tokens_of(events) != expected, (cut, name)
            engine.close(1)
            engine.evict_blocks()
            drain(engine)


@pytest.mark.parametrize("table", GROUP_TABLES)
def test_chunks_and_neighbours_change_no_token(make_engine: MakeEngine, table: str) -> None:
    alone = make_engine("sim", sim_groups=table)
    asked = [
        request(number, prompt(80 + 16 * (number % 3)) + prompt(3 * number, seed=number))
        for number in range(8)
    ]
    expected = []
    for each in asked:
        expected.append(generate(alone, each))
        alone.evict_blocks()
    for chunk, pages in ((512, 400), (16, 400), (33, 24)):
        size = alone.info.block_bytes
        engine = make_engine(
            "sim",
            sim_groups=table,
            chunk_tokens=chunk,
            kv_bytes=max(65536, pages * size),
            max_running=5,
            context_tokens=160,
        )
        for _ in range(2):
            outputs = run_local(engine, asked)
            assert [output.tokens[0] for output in outputs] == expected, (table, chunk)
        engine.evict_blocks()
        assert_baseline(engine)


def test_a_stream_goes_on_elsewhere_from_its_last_full_block(engine: Engine) -> None:
    rules = rules_of(engine)
    tokens = prompt(37)
    whole = generate(engine, request(0, tokens, sampling=params(max_tokens=60)))
    engine.evict_blocks()
    for moved in range(7, 60, 7):
        engine.add(request(1, tokens, sampling=params(max_tokens=60)))
        output: list[int] = []
        while len(output) < moved:
            for event in engine.step():
                match event:
                    case Admitted():
                        engine.start(1, event.ready_tokens)
                    case SampledTokens():
                        output.extend(event.token_ids)
        # Published as the stream runs: nothing had to be kept for it.
        cut = (len(tokens) + len(output) - 1) // BLOCK * BLOCK
        objects = read_objects(engine, 1, names_of(engine, [cut]))
        engine.close(1)
        engine.evict_blocks()
        drain(engine)
        asked = request(2, tokens, sampling=params(max_tokens=60), output=tuple(output))
        events = continue_from(engine, replace(asked, cut_tokens=cut), objects)
        assert output + tokens_of(events) == whole
        assert isinstance(events[-1], SequenceEnded)
        assert events[-1].computed_tokens <= len(whole) - len(output) + rules.block_tokens
        engine.close(2)
        engine.evict_blocks()
        drain(engine)


def test_blocks_behind_are_gone_unless_kept(make_engine: MakeEngine) -> None:
    engine = make_engine("sim", sim_groups="full,window:40,chunk:32,state", chunk_tokens=16)
    tokens = prompt(200)
    cut = 96
    expected = compute_objects(engine, tokens, [cut])
    needed = names_of(engine, [cut])
    for kept in (True, False):
        admitted = admit(engine, request(1, tokens))
        if kept:
            engine.keep_cuts(1, [cut])
        engine.start(1, admitted.ready_tokens)
        drain(engine)
        for name in needed:
            if kept or name[0] == 0:
                assert read_objects(engine, 1, [name])[name] == expected[name]
            else:
                with pytest.raises(BlockGoneError):
                    read_objects(engine, 1, [name])
        if kept:
            before = engine.stats().free_pages
            engine.keep_cuts(1, [])
            assert engine.stats().free_pages >= before
            with pytest.raises(BlockGoneError):
                read_objects(engine, 1, [needed[-1]])
        with pytest.raises(ValueError, match="no group 4"):
            engine.read_blocks(1, [0], [memoryview(bytearray(256))], 4)
        with pytest.raises(ValueError, match="ends of blocks only"):
            engine.keep_cuts(1, [97])
        engine.close(1)
        engine.evict_blocks()
        drain(engine)
    assert_baseline(engine)


def test_a_page_taken_while_it_is_copied_is_gone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes the page in the very step in which it is published."""
    engine = make_engine("sim", sim_groups="full,window:40", kv_bytes=65536, context_tokens=400)
    tokens = prompt(100)
    admitted = admit(engine, request(1, tokens, sampling=params(max_tokens=250)))
    engine.start(1, admitted.ready_tokens)
    while not any(isinstance(event, BlocksReady) for event in engine.step()):
        pass
    read = SimPages.read_pages
    taken: list[int] = []

    def race(self: SimPages, pages: list[int], out: list[memoryview]) -> None:
        if not taken:
            taken.extend(pages)
            for _ in range(40):  # decodes past the window
                engine.step()
            engine.add(request(2, prompt(380, seed=3), prefill_only=True))
            for event in steps(engine):
                if isinstance(event, Admitted):
                    engine.start(event.id, event.ready_tokens)
        read(self, pages, out)

    monkeypatch.setattr(SimPages, "read_pages", race)
    with pytest.raises(BlockGoneError, match="as it was copied"):
        read_objects(engine, 1, [(1, 4)])
    assert taken


def test_the_prefix_cache_offers_cuts_and_the_better_one_is_taken(engine: Engine) -> None:
    rules = rules_of(engine)
    shared = prompt(96)
    generate(engine, request(0, shared + prompt(10, seed=1)))
    longer = shared + prompt(40, seed=2)
    own = admit(engine, request(1, longer)).cached_tokens
    engine.close(1)
    # The end of what another sequence had is a cut, unless nothing of a window is kept there.
    assert own in rules.allowed(lambda _g, _b: True, 96)
    best = rules.floor(len(longer) - 1)
    best -= best % BLOCK
    asked = request(2, longer, cut_tokens=best)
    admitted = admit(engine, asked)
    assert admitted.ready_tokens == best
    assert admitted.cached_tokens == (0 if admitted.missing else best)
    engine.close(2)
    if own > BLOCK:
        assert admit(engine, request(3, longer, cut_tokens=own - BLOCK)).ready_tokens == own
        engine.close(3)


@pytest.mark.parametrize(
    ("table", "asked"),
    [
        ("", request(0, prompt(40), cut_tokens=16)),
        ("full,state", request(0, prompt(40), cut_tokens=39)),
        ("full,window:40", request(0, prompt(40), cut_tokens=38)),
        ("full,window:40", request(0, prompt(40), cut_tokens=40)),
        ("full,window:40", request(0, prompt(40), cut_tokens=-16)),
    ],
)
def test_what_is_no_cut_is_refused(
    make_engine: MakeEngine, table: str, asked: SequenceRequest
) -> None:
    engine = make_engine("sim", sim_groups=table)
    with pytest.raises(ValueError, match="cut"):
        engine.add(asked)
    assert_baseline(engine)


@pytest.mark.parametrize("seed", range(3))
def test_in_any_life_tokens_are_those_of_the_prompt_alone(
    make_engine: MakeEngine, seed: int
) -> None:
    draw = random.Random(seed)
    table = draw.choice(GROUP_TABLES)
    reference = make_engine("sim", sim_groups=table)
    size = reference.info.block_bytes
    engine = make_engine(
        "sim",
        sim_groups=table,
        kv_bytes=max(65536, 40 * size),
        context_tokens=192,
        chunk_tokens=draw.choice([16, 24, 64]),
        max_running=4,
    )
    open_now: dict[int, SequenceRequest] = {}
    outputs: dict[int, list[int]] = {}
    loading: dict[int, Admitted] = {}
    objects = {}
    compared = 0
    for number in range(400):
        action = draw.random()
        if action < 0.25 and len(open_now) < 8:
            tokens = prompt(draw.randrange(1, 120), seed=draw.randrange(3))
            cuts = [0, *cuts_of(engine, len(tokens))]
            cut = draw.choice(cuts) if draw.random() < 0.4 else 0
            asked = request(
                number, tokens, sampling=params(max_tokens=draw.choice([1, 30])), cut_tokens=cut
            )
            objects[number] = compute_objects(reference, tokens, [cut])
            engine.add(asked)
            open_now[number], outputs[number] = asked, []
        elif action < 0.3 and open_now:
            victim = draw.choice(sorted(open_now))
            engine.close(victim)
            del open_now[victim]
            loading.pop(victim, None)
        elif action < 0.4 and open_now:
            chosen = draw.choice(sorted(open_now))
            (engine.pause if draw.random() < 0.5 else engine.resume)(chosen)
        elif action < 0.6 and loading:
            admitted = loading.pop(draw.choice(sorted(loading)))
            write_missing(engine, admitted, objects[admitted.id])
            engine.start(admitted.id, admitted.ready_tokens)
        else:
            for event in engine.step():
                match event:
                    case Admitted():
                        loading[event.id] = event
                    case SampledTokens():
                        outputs[event.id].extend(event.token_ids)
                    case SequenceEnded():
                        asked = open_now.pop(event.id)
                        engine.close(event.id)
                        alone = replace(asked, id=0, cut_tokens=0)
                        assert outputs[event.id] == generate(reference, alone)
                        reference.evict_blocks()
                        compared += 1
    for number in open_now:
        engine.close(number)
    engine.evict_blocks()
    assert_baseline(engine)
    assert compared > 5
