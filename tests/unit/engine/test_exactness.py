"""However a sequence is computed, its tokens are the same: on every engine, token for token."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, EndReason, SampledTokens, SequenceEnded
from baton.engine.local import run_local
from baton.sampling import SamplingParams

MakeEngine = Callable[..., Engine]

ENGINES = [
    ("sim", "llama"),
    ("torch", "llama"),
    ("torch", "qwen2"),
    ("torch", "qwen3"),
    ("native", "llama"),
    ("native", "qwen2"),
    ("native", "qwen3"),
    ("bf16", "llama"),
    ("bf16", "qwen2"),
    ("bf16", "qwen3"),
]
OUTPUT = 18
"""Tokens that fill a block, of 16, wherever the prompt ends."""
GREEDY = SamplingParams(seed=0, temperature=0)
SEEDED = SamplingParams(
    seed=7,
    temperature=0.9,
    top_p=0.95,
    top_k=100,
    min_p=0.001,
    repetition_penalty=1.1,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    logit_bias={5: 1.5, 6: -3.0},
)
KINDS = pytest.mark.parametrize(("kind", "family"), ENGINES, ids=["-".join(e) for e in ENGINES])
SAMPLED = pytest.mark.parametrize(
    ("kind", "family", "sampling"),
    [
        pytest.param("sim", "llama", GREEDY, id="sim-llama-greedy"),
        pytest.param("sim", "llama", SEEDED, id="sim-llama-seeded"),
        pytest.param("torch", "llama", SEEDED, id="torch-llama-seeded"),
        pytest.param("torch", "qwen2", GREEDY, id="torch-qwen2-greedy"),
        pytest.param("torch", "qwen3", SEEDED, id="torch-qwen3-seeded"),
        pytest.param("native", "llama", GREEDY, id="native-llama-greedy"),
        pytest.param("native", "qwen2", SEEDED, id="native-qwen2-seeded"),
        pytest.param("native", "qwen3", GREEDY, id="native-qwen3-greedy"),
        pytest.param("bf16", "llama", SEEDED, id="bf16-llama-seeded"),
        pytest.param("bf16", "qwen3", SEEDED, id="bf16-qwen3-seeded"),
    ],
)
"""Each kind and each family with each sampling, not all three with all."""


def prompt(length: int, seed: int = 0) -> list[int]:
    return [(37 * i + 101 * seed + i * i * (seed + 1)) % 500 for i in range(length)]


def request(
    number: int, tokens: Sequence[int], sampling: SamplingParams, max_tokens: int = 24
) -> SequenceRequest:
    return SequenceRequest(
        id=number,
        root=b"root",
        prompt=tuple(tokens),
        sampling=msgspec.structs.replace(sampling, max_tokens=max_tokens, ignore_eos=True),
    )


def alone(engine: Engine, asked: SequenceRequest) -> list[int]:
    """The tokens of a request that has the engine for itself and finds nothing in its cache."""
    engine.evict_blocks()
    (output,) = run_local(engine, [asked])
    return output.tokens[asked.choices[0]]


def admitted(engine: Engine, number: int) -> Admitted:
    (event,) = [e for e in engine.step() if isinstance(e, Admitted) and e.id == number]
    return event


def finish_all(
    engine: Engine, numbers: Sequence[int]
) -> dict[int, tuple[list[int], SequenceEnded]]:
    """Run started sequences to their ends; answers tokens and the end of each."""
    tokens: dict[int, list[int]] = {number: [] for number in numbers}
    ended: dict[int, tuple[list[int], SequenceEnded]] = {}
    while len(ended) < len(tokens):
        for event in engine.step():
            if isinstance(event, SampledTokens) and event.id in tokens:
                tokens[event.id].extend(event.token_ids)
            if isinstance(event, SequenceEnded) and event.id in tokens:
                engine.close(event.id)
                ended[event.id] = tokens[event.id], event
    return ended


def finish(engine: Engine, number: int) -> tuple[list[int], SequenceEnded]:
    """Run a started sequence to its end; answers tokens and the end."""
    return finish_all(engine, [number])[number]


def prefill(engine: Engine, asked: SequenceRequest, choices: int) -> tuple[list[int], list[bytes]]:
    """Prefill and leave open; answers the first token per choice and the keys of all blocks."""
    engine.add(replace(asked, choices=tuple(range(choices)), prefill_only=True))
    engine.start(asked.id, admitted(engine, asked.id).cached_tokens)
    first: list[int] = []
    keys: list[bytes] = []
    while True:
        for event in engine.step():
            match event:
                case SampledTokens():
                    assert event.choice == len(first)
                    first.extend(event.token_ids)
                case BlocksReady():
                    assert event.first_index == len(keys)
                    keys.extend(event.keys)
                case SequenceEnded():
                    assert set(event.reasons) == {EndReason.PREFILLED}
                    return first, keys


def move_blocks(source: Engine, number: int, target: Engine, into: Admitted) -> None:
    size = source.info.block_bytes
    first = into.cached_tokens // source.info.layout.block_tokens
    for index in range(first, len(into.keys)):
        block = memoryview(bytearray(size))
        source.read_blocks(number, [index], [block])
        target.write_blocks(into.id, [index], block.toreadonly())


@SAMPLED
def test_in_chunks_as_in_one_piece(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    asked = [
        request(i, prompt(n, seed=i), sampling, 8) for i, n in enumerate((1, 15, 16, 17, 33, 500))
    ]
    # At once as each alone: another test holds that.
    outputs = run_local(make_engine(kind, family, chunk_tokens=4096), asked)
    expected = [output.tokens[0] for output in outputs]
    # At least a block of prompt is computed per step, whatever the setting.
    for chunk in (1, 17, 100):
        chunked = make_engine(kind, family, chunk_tokens=chunk)
        assert [alone(chunked, each) for each in asked] == expected


@SAMPLED
def test_a_long_prompt_in_chunks_as_in_one_piece(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    asked = request(0, prompt(1500), sampling)
    expected = alone(make_engine(kind, family, chunk_tokens=4096), asked)
    assert alone(make_engine(kind, family, chunk_tokens=300), asked) == expected


@SAMPLED
def test_sixteen_at_once_as_each_alone(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    engine = make_engine(kind, family, chunk_tokens=64)
    asked = [request(i, prompt(3 + 29 * i, seed=i), sampling, 4 + i // 2) for i in range(16)]
    expected = [alone(engine, each) for each in asked]
    engine.evict_blocks()
    outputs = run_local(engine, asked)
    assert [output.tokens[0] for output in outputs] == expected
    assert len({tuple(tokens) for tokens in expected}) == 16


@SAMPLED
def test_with_cached_blocks_as_without(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    engine = make_engine(kind, family)
    for cached, length in ((16, 17), (16, 31), (48, 64), (64, 64), (400, 500)):
        asked = request(0, prompt(length), sampling, 12)
        expected = alone(engine, asked)
        engine.evict_blocks()
        run_local(engine, [request(1, prompt(length)[:cached], sampling, 1)])
        before = engine.stats().computed_tokens
        (output,) = run_local(engine, [asked])
        assert output.tokens[0] == expected
        assert output.ended is not None
        assert output.ended.cached_tokens == min(cached, length - 1)
        computed = engine.stats().computed_tokens - before
        assert computed == length - min(cached, length - 1) + 11
        assert output.ended.computed_tokens == computed


@KINDS
def test_a_recomputed_last_token_is_not_written(
    make_engine: MakeEngine, kind: str, family: str
) -> None:
    source = make_engine(kind, family)
    prefill(source, request(0, prompt(32, seed=8), GREEDY), 1)
    engine = make_engine(kind, family)
    asked = replace(request(0, prompt(32), GREEDY), prefill_only=True)
    engine.add(asked)
    into = admitted(engine, 0)
    # Another prompt's KV, so that whoever writes what he computed from this one is found out.
    move_blocks(source, 0, engine, into)
    engine.start(0, 32)
    engine.step()
    blocks = [memoryview(bytearray(engine.info.block_bytes)) for _ in range(3)]
    source.read_blocks(0, [1], [blocks[0]])
    engine.read_blocks(0, [1], [blocks[1]])
    assert blocks[1] == blocks[0]
    (output,) = run_local(engine, [replace(asked, id=1)])
    engine.read_blocks(0, [1], [blocks[2]])
    assert blocks[2] == blocks[0]
    assert output.ended is not None
    assert output.ended.cached_tokens == 31


@SAMPLED
def test_two_choices_moved_to_another_engine_as_on_one(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    reference = make_engine(kind, family)
    source = make_engine(kind, family, chunk_tokens=64)
    target = make_engine(kind, family)
    # No two prompts begin alike, so that none finds blocks of another. At once as each alone:
    # another test holds that.
    asked = [
        request(2 * i, prompt(length, seed=i), sampling, OUTPUT)
        for i, length in enumerate((1, 15, 16, 17, 33, 500))
    ]
    single = [
        replace(each, id=each.id + choice, choices=(choice,))
        for each in asked
        for choice in range(2)
    ]
    expected = [
        output.tokens[each.choices[0]]
        for each, output in zip(single, run_local(reference, single), strict=True)
    ]
    prefilled = {each.id: prefill(source, each, choices=2) for each in asked}
    for choice in range(2):
        for each in asked:
            _, keys = prefilled[each.id]
            moved = single[each.id + choice]
            target.add(moved)
            into = admitted(target, moved.id)
            assert list(into.keys) == keys
            move_blocks(source, each.id, target, into)
        for each in asked:
            first, _ = prefilled[each.id]
            target.start(each.id + choice, len(each.prompt), output=first[choice : choice + 1])
        ends = finish_all(target, [each.id + choice for each in asked])
        for each in asked:
            rest, ended = ends[each.id + choice]
            assert [prefilled[each.id][0][choice], *rest] == expected[each.id + choice]
            # Nothing of the prompt was computed again: only output tokens but the last.
            assert ended.computed_tokens == OUTPUT - 1
            assert ended.cached_tokens == len(each.prompt)
            assert ended.output_tokens == OUTPUT - 1
    for each in asked:
        source.close(each.id)
    if sampling is SEEDED:
        assert all(expected[each.id] != expected[each.id + 1] for each in asked)


@SAMPLED
def test_a_stream_taken_over_in_the_middle_goes_on_as_if_nothing_was(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    asked = request(0, prompt(21), sampling, 40)
    expected = alone(make_engine(kind, family), asked)
    source = make_engine(kind, family)
    target = make_engine(kind, family)
    # Roots of their own, so that none finds blocks of another.
    moved = [
        replace(asked, id=known, root=bytes([known]), output=tuple(expected[:known]))
        for known in (1, 10, 11, 12, 27, 39)
    ]
    # With nothing in place, and with the blocks that the first engine filled.
    for each, output in zip(moved, run_local(target, moved), strict=True):
        assert output.tokens[0] == expected[each.id :]
    target.evict_blocks()
    filled: dict[int, int] = {}
    for each in moved:
        source.add(each)
        source.start(each.id, admitted(source, each.id).cached_tokens)
        source.step()
        target.add(each)
        into = admitted(target, each.id)
        assert into.cached_tokens == 0
        full = (21 + each.id) // 16
        move_blocks(source, each.id, target, replace(into, keys=into.keys[:full]))
        filled[each.id] = 16 * full
        source.close(each.id)
    for known, there in filled.items():
        target.start(known, there)
    for known, (tokens, ended) in finish_all(target, list(filled)).items():
        assert tokens == expected[known:]
        assert ended.computed_tokens == max(1, 21 + known - filled[known]) + len(tokens) - 1


@SAMPLED
def test_preempted_as_not(
    make_engine: MakeEngine, kind: str, family: str, sampling: SamplingParams
) -> None:
    roomy = make_engine(kind, family)
    # Pages for all prompts, and not for all outputs.
    length, outputs_each, pages = (620, 120, 256) if kind == "sim" else (20, 60, 16)
    asked = [request(i, prompt(length + i, seed=i), sampling, outputs_each) for i in range(6)]
    # At once as each alone: another test holds that.
    expected = [output.tokens[0] for output in run_local(roomy, asked)]
    tight = make_engine(kind, family, kv_bytes=pages * roomy.info.block_bytes)
    outputs = run_local(tight, asked)
    assert [output.tokens[0] for output in outputs] == expected
    ends = [output.ended for output in outputs if output.ended is not None]
    once = [len(each.prompt) + outputs_each - 1 for each in asked]
    computed = [end.computed_tokens for end in ends]
    assert computed[0] == once[0], "the oldest is never preempted"
    assert sum(computed) > sum(once), "nothing was preempted: the test is void"
    assert sum(computed) == tight.stats().computed_tokens
    assert tight.stats().free_pages == tight.stats().total_pages


@KINDS
def test_one_wrong_byte_of_kv_shows(make_engine: MakeEngine, kind: str, family: str) -> None:
    asked = request(0, prompt(40), SEEDED)
    expected = alone(make_engine(kind, family), asked)
    source = make_engine(kind, family)
    target = make_engine(kind, family)
    first, _ = prefill(source, asked, 1)
    target.add(asked)
    into = admitted(target, 0)
    move_blocks(source, 0, target, into)
    block = memoryview(bytearray(source.info.block_bytes))
    source.read_blocks(0, [1], [block])
    # The byte with sign and exponent of a float; any byte of the simulator's.
    block[-1] ^= 0xFF
    target.write_blocks(0, [1], block)
    target.start(0, 40, output=first)
    rest, _ = finish(target, 0)
    assert [first[0], *rest] != expected
