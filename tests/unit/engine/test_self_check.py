"""An engine whose KV does not move rightly does not start; one whose KV does is left as it was."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from baton.engine.base import BlockGoneError
from baton.engine.paged.copies import BlockCopier
from baton.engine.self_check import FEW_TOKENS, OUTPUT_TOKENS, check_kv_moves
from baton.request.stream_events import TokenLogprob
from baton.settings import StartupError
from tests.support.engine.contract import assert_baseline, generate, prompt, request
from tests.support.engine.cuts import GROUP_TABLES, rules_of
from tests.unit.engine.conftest import MakeEngine

PATIENT = 1000.0
"""Seconds: the longer prompt is computed too, on however slow a machine."""
KINDS = ["sim", "torch", "native", "bf16"]
Copy = Callable[..., None]


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_that_moves_kv_rightly_passes_and_is_as_new(
    make_engine: MakeEngine, kind: str
) -> None:
    engine = make_engine(kind)
    engine.warm_up()
    before = engine.stats()
    check_kv_moves(engine, PATIENT)
    assert engine.stats() == before
    assert_baseline(engine)
    assert engine.step() == []
    generate(engine, request(1, prompt(40)))


@pytest.mark.parametrize("table", GROUP_TABLES)
def test_an_engine_with_groups_is_checked_by_cuts(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    engine = make_engine("sim", sim_groups=table)
    check_kv_moves(engine, PATIENT)
    assert_baseline(engine)
    write = BlockCopier.write
    moved = rules_of(engine).needed(96)
    for group in [number for number, blocks in enumerate(moved) if blocks]:

        def harm(self: BlockCopier, *arguments: object, of: int = group) -> None:
            if arguments[3] != of:
                write(self, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(BlockCopier, "write", harm)
        with pytest.raises(StartupError, match="where all is computed"):
            check_kv_moves(engine, PATIENT)
        assert_baseline(engine)


def stale(*_: object) -> None:
    """Write nothing: the page keeps what was there."""


def repeated(
    copier: BlockCopier,
    write: Copy,
    sequence_id: int,
    indexes: Sequence[int],
    data: memoryview,
    _group: int,
) -> None:
    """Write the first block everywhere. (Attention does not see the order of what it reads.)"""
    size = data.nbytes // len(indexes)
    write(copier, sequence_id, indexes, memoryview(bytes(data[:size]) * len(indexes)))


def flipped(
    copier: BlockCopier,
    write: Copy,
    sequence_id: int,
    indexes: Sequence[int],
    data: memoryview,
    _group: int,
) -> None:
    """Write other bytes."""
    write(copier, sequence_id, indexes, memoryview(bytes(byte ^ 0x41 for byte in data)))


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        *(
            (kind, harm)
            for kind in ("sim", "torch", "native")
            for harm in (stale, repeated, flipped)
        ),
        # In half precision a random model, which looks little at what lies far back, differs by
        # less than sums may round.
        ("bf16", flipped),
    ],
)
def test_an_engine_that_does_not_is_refused_with_what_was_compared(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, kind: str, harm: Copy
) -> None:
    engine = make_engine(kind)
    write = BlockCopier.write
    monkeypatch.setattr(
        BlockCopier, "write", lambda self, *arguments: harm(self, write, *arguments)
    )
    with pytest.raises(StartupError) as caught:
        check_kv_moves(engine, PATIENT)
    said = str(caught.value)
    assert "prompt tokens" in said
    assert "where all is computed" in said
    assert "BATON_ENGINE_SELF_CHECK=false" in said
    assert_baseline(engine)


@pytest.mark.parametrize("method", ["read", "write"])
def test_a_block_that_is_gone_is_a_failure(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def gone(*_: object) -> None:
        raise BlockGoneError("sequence -2 does not hold block 0")

    engine = make_engine("sim")
    monkeypatch.setattr(BlockCopier, method, gone)
    with pytest.raises(StartupError, match=r"KV of a prompt cannot be read.*hold block 0"):
        check_kv_moves(engine)
    assert_baseline(engine)


class Clock:
    """Says that every look at it is so many seconds after the last."""

    def __init__(self, step: float) -> None:
        self._step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self._step
        return self.now


@pytest.mark.parametrize(("step", "most"), [(0.01, OUTPUT_TOKENS), (1.0, FEW_TOKENS)])
def test_a_slow_engine_is_asked_for_less(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, step: float, most: int
) -> None:
    engine = make_engine("sim")
    asked: list[tuple[int, int]] = []
    add = engine.add

    def note(one: object) -> None:
        asked.append((len(one.prompt), one.sampling.max_tokens))  # type: ignore[attr-defined]
        add(one)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "add", note)
    check_kv_moves(engine, clock=Clock(step))
    lengths = [length for length, _ in asked]
    assert len(set(lengths)) == (2 if step < 1 else 1)
    assert [limit for _, limit in asked[:5]] == [OUTPUT_TOKENS, 1, most, 1, most]


def test_an_engine_that_holds_no_such_prompt_is_not_asked(make_engine: MakeEngine) -> None:
    engine = make_engine("sim", context_tokens=24)
    check_kv_moves(engine)
    assert engine.stats().computed_tokens == 0


@pytest.mark.parametrize(
    ("dtype", "gap", "refused"),
    [
        ("float32", 1e-5, False),
        ("float32", 0.1, True),
        ("bfloat16", 0.1, False),
        ("bfloat16", 3.0, True),
    ],
)
def test_tokens_that_were_equally_likely_may_change_places(
    make_engine: MakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    gap: float,
    refused: bool,
) -> None:
    from baton.engine import self_check

    engine = make_engine("sim")
    engine.info = replace(engine.info, layout=replace(engine.info.layout, dtype=dtype))
    entry = TokenLogprob(-0.5, ((7, -0.5), (8, -0.5 - gap), (9, -9.0)))
    whole = self_check._Run([7], [entry])
    other = self_check._Run([8], [TokenLogprob(-0.5, ((8, -0.5),))])
    if refused:
        with pytest.raises(StartupError, match="output token 0 is 8, and 7 where"):
            self_check._check_equal(engine, whole, other, 0, "some")
    else:
        self_check._check_equal(engine, whole, other, 0, "some")
