"""Columns of workers give the placements, and the costs, that going through all pairs gives."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.compiled.files import DIRECTORY_ENV
from baton.compiled.library import C
from baton.errors import BatonError
from services.router.policy.compiled.build import library
from services.router.policy.compiled.native_scores import NativeScorer
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.costs import PlacementQuery, Policy, PrefillEstimate, PromptTurn
from services.router.policy.pick import score_arrays
from services.router.policy.placement import choose
from services.router.policy.scores import Adapted, Picked, Scorer, Scores
from services.router.prefix_index.holders import DISK, DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.columns import WorkerColumns
from services.router.state.rates import WorkerRates
from services.router.state.worker import Worker
from tests.support.examples import examples
from tests.support.router import naive_placement
from tests.support.router.placement import make_worker

LAYOUTS = (b"L" * 16, b"M" * 16)
KEYS = [number.to_bytes(16, "little") for number in range(12)]
STORES = ["store-a", "store-b", "store-c"]
NAMES = [f"w{number}" for number in range(12)]

rates = st.builds(
    WorkerRates,
    st.floats(100, 10_000),
    st.floats(0.001, 0.1),
    st.floats(1e6, 1e9),
    st.floats(1e9, 1e10),
)
one_worker = st.builds(
    make_worker,
    id=st.sampled_from(NAMES),
    incarnation=st.just("1"),
    address=st.just("a:1"),
    can_prefill=st.booleans(),
    can_decode=st.booleans(),
    layout_id=st.sampled_from([LAYOUTS[0], *LAYOUTS]),
    store_id=st.sampled_from(["", *STORES, *STORES]),
    block_tokens=st.sampled_from([16, 16, 32]),
    block_bytes=st.integers(1, 1_000_000),
    rates=rates,
    running=st.integers(0, 20),
    waiting=st.integers(0, 4),
    pending_prompt_tokens=st.integers(0, 5_000),
    free_pages=st.integers(-5, 60),
    total_pages=st.integers(1, 100),
    decode_chunk_tokens=st.sampled_from([0, 16, 512]),
    draining=st.sampled_from([False] * 5 + [True]),
    stale=st.sampled_from([False] * 4 + [True]),
    computed_seconds=st.floats(0, 1),
    computed_at=st.floats(0, 5),
    computes_until=st.floats(0, 10),
    itl_target=st.sampled_from([math.inf, 0.01, 0.05, 0.5]),
    itl_target_of_all=st.booleans(),
)
some_workers = st.lists(one_worker, max_size=12, unique_by=lambda one: one.id)
held = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.sampled_from(STORES), st.sampled_from([DRAM, DISK])),
            st.tuples(st.sampled_from(NAMES), st.just(ENGINE)),
        ),
        st.integers(0, 12),
        st.integers(0, 12),
    ),
    max_size=10,
)
queries = st.builds(
    PlacementQuery,
    prompt_tokens=st.integers(1, 400),
    max_tokens=st.integers(1, 300),
    n=st.integers(1, 3),
    output_tokens=st.sampled_from([0, 0, 0, 1, 40]),
    excluded=st.frozensets(st.sampled_from(NAMES), max_size=2),
    seed=st.integers(0, 2**32 - 1),
    turns=st.dictionaries(
        st.sampled_from(NAMES),
        st.builds(PromptTurn, st.floats(-3, 3), st.integers(0, 3)),
        max_size=3,
    ),
    now=st.floats(0, 12),
)
policies = st.builds(
    Policy,
    disaggregation=st.sampled_from(["auto", "auto", "always", "never"]),
    chunk_tokens=st.sampled_from([64, 512]),
    resume_remote_min_tokens=st.sampled_from([0, 100]),
    max_prefill_workers=st.sampled_from([1, 2, 8]),
    itl_target=st.floats(0.001, 0.2),
)


def flat(estimate: PrefillEstimate) -> list[float]:
    return [*estimate.coverage, *estimate[1:]]


def asked(query: PlacementQuery, held: list) -> PlacementQuery:
    """Return a query with what is held of its prompt."""
    index = PrefixIndex()
    for (holder, tier), begin, end in held:
        index.add_blocks(holder, tier, KEYS[begin:end])
    return replace(query, matches=dict.fromkeys(LAYOUTS, index.match(KEYS)))


@cache
def compiled_scorer() -> Scorer | None:
    """Return what is compiled; None where there is no C compiler."""
    return NativeScorer(library().build()) if any(map(shutil.which, C.compilers)) else None


def scorer_of(*, use_compiled: bool) -> Scorer:
    """Return a scorer that scores both ways: they are the same to the last bit."""

    def scorer(*given: Any) -> tuple[Scores, Picked]:
        found = score_arrays(*given)
        if (compiled := compiled_scorer()) is None:
            return found
        assert_equal(found, other := compiled(*given))
        return other if use_compiled else found

    return scorer


@settings(max_examples=examples(160))
@given(some_workers, held, queries, policies, st.booleans())
def test_every_placement_is_the_one_that_going_through_all_gives(
    workers: Sequence[Worker],
    held: list,
    query: PlacementQuery,
    policy: Policy,
    use_compiled: bool,
) -> None:
    query, scorer = asked(query, held), scorer_of(use_compiled=use_compiled)
    naive = naive_placement.place(query, workers, policy)
    columns = WorkerColumns(workers)
    if naive is None:
        with pytest.raises(BatonError):
            choose(query, columns, policy, scorer=scorer)
        return
    chosen = choose(query, columns, policy, scorer=scorer)
    scores = chosen.candidates.scores
    found = {one.decode.worker.id: one.score for one in naive.local}
    if chosen.local:
        rows = [columns.ids[row] for row in scores.decode_rows]
        assert dict(zip(rows, scores.local, strict=True)) == pytest.approx(found)
    pairs = {}
    if scores.pairs is not None:
        for at, prefill in enumerate(scores.pairs.prefill_rows):
            for to, decode in enumerate(scores.pairs.decode_rows):
                if scores.pairs.scores[at, to] < float("inf"):
                    ids = columns.ids[prefill], columns.ids[decode]
                    pairs[ids] = chosen.candidates.pair(scores.pairs, at, to)
    wanted = {(one.prefill_worker.id, one.decode.worker.id): one for one in naive.remote}
    assert pairs.keys() == wanted.keys()
    for ids, one in wanted.items():
        assert pairs[ids].score == pytest.approx(one.score)
        assert flat(pairs[ids].prefill) == pytest.approx(flat(one.prefill))
        ttft = naive_placement.estimate_ttft(query, one, policy)
        assert pairs[ids].ttft == pytest.approx(ttft)
    best = chosen.best
    assert best.score == pytest.approx(naive.best.score)
    assert (best.prefill_worker, best.decode_worker) == (
        naive.best.prefill_worker,
        naive.best.decode.worker,
    )
    assert flat(best.prefill) == pytest.approx(flat(naive.best.prefill))
    assert best.ttft == pytest.approx(naive_placement.estimate_ttft(query, naive.best, policy))
    assert best.decode_pages == naive.best.decode.pages


def assert_equal(one: Any, other: Any) -> None:
    """Check two parts of scores: the compiled ones have zeros where nothing was to be computed."""
    if one is None or other is None:
        assert not np.any(one if one is not None else other)
    elif isinstance(one, np.ndarray):
        assert one.shape == other.shape and (one == other).all()
    elif isinstance(one, Adapted):
        changed = other.changed > 0
        assert (one.changed == changed).all() and one.prefill.tokens == other.prefill.tokens
        assert_equal(one.prefill.values[:, changed], other.prefill.values[:, changed])
    elif isinstance(one, dict):
        # A store that changes no prefill worker may be named, or not.
        assert {store for store in one if one[store].changed.any()} == other.keys()
        for store, adapted in other.items():
            assert_equal(one[store], adapted)
    elif isinstance(one, tuple):
        for part, others in zip(one, other, strict=True):
            assert_equal(part, others)
    else:
        assert one == other


def test_compiled_scores_are_used_where_they_were_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path))
    assert choose_scorer().taken is score_arrays
    if any(map(shutil.which, C.compilers)):
        assert library().build() == library().path
        assert isinstance(choose_scorer().taken, NativeScorer)


@settings(max_examples=examples(40))
@given(some_workers, st.data())
def test_rows_that_are_written_anew_are_those_of_new_columns(
    workers: Sequence[Worker], data: st.DataObject
) -> None:
    columns = WorkerColumns(workers)
    before = list(columns.workers)
    kept = columns.workers
    changed = {}
    for one in workers:
        if data.draw(st.booleans()):
            changed[one.id] = replace(
                one,
                running=data.draw(st.integers(0, 9)),
                pending_prompt_tokens=data.draw(st.integers(0, 999)),
                draining=data.draw(st.booleans()),
                stale=data.draw(st.booleans()),
                itl_target=data.draw(st.sampled_from([math.inf, 0.02])),
                itl_target_of_all=data.draw(st.booleans()),
            )
    columns.update(list(changed.values()))
    assert list(kept) == before, "who has read the workers keeps them"
    fresh = WorkerColumns([changed.get(one.id, one) for one in workers])
    assert (columns.values == fresh.values).all()
    for name in ("active", "stale", "beside"):
        assert (getattr(columns, name) == getattr(fresh, name)).all()
    assert columns.any_beside == fresh.any_beside
