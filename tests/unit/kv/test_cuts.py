"""Cuts against a reference that follows what every token reads, for any groups and objects."""

from collections.abc import Set
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.kv.cuts import CutRules, cut_rules
from baton.kv.layout import GroupKind, KvGroup, Layout
from tests.support.examples import examples

Objects = Set[tuple[int, int]]
"""Objects that are there: group, block."""


def read_by(group: KvGroup, token: int) -> range:
    """Return the tokens before it that a token reads; of a state the last one stands for all."""
    match group.kind:
        case GroupKind.FULL:
            return range(token)
        case GroupKind.WINDOW:
            return range(max(0, token - group.span_tokens + 1), token)
        case GroupKind.CHUNK:
            return range(token // group.span_tokens * group.span_tokens, token)
        case GroupKind.STATE:
            return range(max(0, token - 1), token)


def reference_needed(rules: CutRules, cut: int) -> Objects:
    """Return the objects that are read when all tokens from `cut` on are computed in order."""
    needed = set()
    for number, group in enumerate(rules.groups):
        longest_span = group.span_tokens + rules.block_tokens + 1
        for token in range(cut, cut + longest_span):
            needed |= {
                (number, read // rules.block_tokens) for read in read_by(group, token) if read < cut
            }
    return needed


def reference_cuts(rules: CutRules, objects: Objects, limit: int) -> list[int]:
    """Return all cuts that can be continued: at each end of a block, and at `limit`."""
    size = rules.block_tokens
    state = any(group.kind is GroupKind.STATE for group in rules.groups)
    ends = [n for n in range(limit + 1) if n % size == 0 or (n == limit and not state)]
    return [n for n in ends if reference_needed(rules, n) <= objects]


@dataclass(frozen=True)
class Case:
    rules: CutRules
    objects: Objects
    limit: int


@st.composite
def group_tables(draw: st.DrawFn) -> CutRules:
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(GroupKind))
        spans = kind in (GroupKind.WINDOW, GroupKind.CHUNK)
        groups.append(KvGroup(kind, 16, draw(st.integers(1, 13)) if spans else 0))
    return CutRules(tuple(groups), draw(st.integers(1, 5)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw groups, and objects in the way that they come to be: cuts stored, some evicted again."""
    rules = draw(group_tables())
    limit = draw(st.integers(0, 9 * rules.block_tokens))
    everything = [(g, b) for g in range(len(rules.groups)) for b in range(rules.blocks(limit))]
    objects: set[tuple[int, int]] = set()
    if draw(st.booleans()):
        objects.update(draw(st.sets(st.sampled_from(everything))) if everything else ())
    for cut in draw(st.lists(st.integers(0, limit), max_size=3)):
        objects |= reference_needed(rules, rules.floor(cut))
    if objects:
        objects -= draw(st.sets(st.sampled_from(sorted(objects)), max_size=3))
    return Case(rules, objects, limit)


@settings(max_examples=examples(24))
@given(cases())
def test_a_cut_that_is_offered_can_be_continued_and_none_longer(case: Case) -> None:
    def has(group: int, block: int) -> bool:
        return (group, block) in case.objects

    expected = reference_cuts(case.rules, case.objects, case.limit)
    assert case.rules.allowed(has, case.limit) == expected
    assert case.rules.longest(has, case.limit) == expected[-1]


@settings(max_examples=examples(24))
@given(cases())
def test_what_is_kept_serves_some_cut(case: Case) -> None:
    def has(group: int, block: int) -> bool:
        return (group, block) in case.objects

    cuts = reference_cuts(case.rules, case.objects, case.limit)
    serving = set[tuple[int, int]]().union(*(reference_needed(case.rules, cut) for cut in cuts))
    within = {(g, b) for g, b in case.objects if b < case.rules.blocks(case.limit)}
    assert case.rules.unneeded(has, case.limit) == sorted(within - serving)


@settings(max_examples=examples(16))
@given(group_tables(), st.data())
def test_a_cut_needs_what_its_tokens_read(rules: CutRules, data: st.DataObject) -> None:
    cut = rules.floor(data.draw(st.integers(0, 8 * rules.block_tokens)))
    needed = {(g, block) for g, blocks in enumerate(rules.needed(cut)) for block in blocks}
    assert needed == reference_needed(rules, cut)


@settings(max_examples=examples(12))
@given(cases())
def test_evicting_what_no_cut_needs_takes_no_cut_away(case: Case) -> None:
    def has(group: int, block: int) -> bool:
        return (group, block) in case.objects

    kept = case.objects - set(case.rules.unneeded(has, case.limit))
    assert reference_cuts(case.rules, kept, case.limit) == reference_cuts(
        case.rules, case.objects, case.limit
    )


def test_what_a_window_a_chunk_and_a_state_need() -> None:
    groups = (
        KvGroup(GroupKind.FULL, 1),
        KvGroup(GroupKind.WINDOW, 1, 64),
        KvGroup(GroupKind.CHUNK, 1, 128),
        KvGroup(GroupKind.STATE, 1),
    )
    rules = CutRules(groups, 16)
    assert rules.needed(480) == (range(30), range(26, 30), range(24, 30), range(29, 30))
    assert rules.needed(512) == (range(32), range(28, 32), range(32, 32), range(31, 32))
    assert rules.needed(0) == (range(0), range(0), range(0), range(0))
    assert CutRules(groups[:3], 16).needed(491) == (range(31), range(26, 31), range(24, 31))
    with pytest.raises(ValueError, match="ends of blocks only, not after 491 tokens"):
        rules.needed(491)


def test_a_layout_without_groups_has_one_of_full_attention() -> None:
    rules = cut_rules(Layout("torch/1", "cpu", "", "float32", 2, 2, 16, 16))
    assert rules.needed(40) == (range(3),)
    assert rules.longest(lambda _group, block: block != 2, 100) == 32
    assert rules.longest(lambda _group, _block: True, 40) == 40
    assert rules.is_full(0)
    assert not CutRules((KvGroup(GroupKind.STATE, 1),), 16).is_full(0)
