"""The longest cut of each holder equals what `CutRules.longest` finds for it alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baton.kv.cuts import CutRules
from baton.kv.keys import pack
from baton.kv.layout import GroupKind, KvGroup
from services.router.prefix_index.blocks.build import library
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.native_table import NativeTable
from services.router.prefix_index.blocks.table import BlockTable
from services.router.prefix_index.holders import DISK, DRAM, ENGINE
from services.router.prefix_index.index import MAX_GROUPS, PrefixIndex
from tests.support.examples import examples
from tests.support.router.placement import cover

BLOCKS = 12
KEYS = [bytes([number + 1]) * 16 for number in range(BLOCKS)]
SLOTS = [("worker", ENGINE), ("near", DRAM), ("near", DISK), ("far", DRAM)]
FULL = KvGroup(GroupKind.FULL, 16)
WINDOW = KvGroup(GroupKind.WINDOW, 16, 8)

MakeTable = Callable[[], BlockTable]


@pytest.fixture(params=["dict", "native"])
def make_table(request: pytest.FixtureRequest) -> MakeTable:
    if request.param == "dict":
        return DictTable
    built = library().build()
    return lambda: NativeTable(built)


@dataclass(frozen=True)
class Change:
    """Objects of one holder's tier that came, went, or all of them."""

    kind: str
    slot: tuple[str, int]
    group: int
    blocks: Sequence[int]


@st.composite
def rules_of_layouts(draw: st.DrawFn) -> CutRules:
    groups = [FULL] * draw(st.integers(0, 2))
    for kind in draw(st.lists(st.sampled_from(list(GroupKind)[1:]), max_size=3)):
        span = 0 if kind is GroupKind.STATE else draw(st.integers(1, 13))
        groups.append(KvGroup(kind, 16, span))
    return CutRules(tuple(groups or [FULL]), draw(st.integers(1, 5)))


@st.composite
def histories(draw: st.DrawFn, rules: CutRules) -> list[Change]:
    """Draw cuts that holders store, and single objects that come and go."""
    changes = []
    for _ in range(draw(st.integers(1, 10))):
        slot = draw(st.sampled_from(SLOTS))
        kind = draw(st.sampled_from(("cut", "cut", "add", "evict", "remove", "sweep")))
        if kind == "cut":
            cut = rules.floor(draw(st.integers(1, BLOCKS * rules.block_tokens)))
            for group, needed in enumerate(rules.needed(cut)):
                changes.append(Change("add", slot, group, needed))
        else:
            group = draw(st.integers(0, len(rules.groups) - 1))
            blocks = draw(st.lists(st.integers(0, BLOCKS - 1), max_size=4))
            changes.append(Change(kind, slot, group, blocks))
    return changes


def apply(index: PrefixIndex, change: Change) -> None:
    keys = [KEYS[block] for block in change.blocks]
    if change.kind == "add":
        index.add_blocks(*change.slot, keys, change.group)
    elif change.kind == "evict":
        index.remove_blocks(*change.slot, keys, change.group)
    elif change.kind == "remove":
        index.remove_holder(change.slot[0])
    else:
        index.sweep(2)


class Truth:
    """What is held, as plain sets of group and block."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], set[tuple[int, int]]] = {slot: set() for slot in SLOTS}

    def apply(self, change: Change) -> None:
        objects = {(change.group, block) for block in change.blocks}
        if change.kind == "add":
            self.held[change.slot] |= objects
        elif change.kind == "evict":
            self.held[change.slot] -= objects
        elif change.kind == "remove":
            for slot in SLOTS:
                if slot[0] == change.slot[0]:
                    self.held[slot].clear()

    def blocks(self, rules: CutRules, limit: int, *slots: tuple[str, int]) -> int:
        """Return into how many blocks the longest cut of these tiers together reaches.

        A cut that needs nothing, such as one where a chunk begins, belongs to holders of anything.
        """
        objects = set[tuple[int, int]]().union(*(self.held[slot] for slot in slots))
        if not any(block < rules.blocks(limit) for _, block in objects):
            return 0
        return rules.blocks(rules.longest(lambda group, block: (group, block) in objects, limit))


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_each_holder_has_the_blocks_of_its_longest_cut(
    make_table: MakeTable, data: st.DataObject
) -> None:
    rules = data.draw(rules_of_layouts())
    index, truth = PrefixIndex(table=make_table()), Truth()
    for change in data.draw(histories(rules)):
        apply(index, change)
        truth.apply(change)
    limit = data.draw(st.integers(0, BLOCKS * rules.block_tokens))
    match = index.match_cuts(pack(KEYS), rules, limit)
    engine = truth.blocks(rules, limit, ("worker", ENGINE))
    local = truth.blocks(rules, limit, ("near", DRAM))
    near = truth.blocks(rules, limit, ("near", DRAM), ("near", DISK))
    far = truth.blocks(rules, limit, ("far", DRAM))
    assert cover(match, "worker", "").engine == engine
    for store, own in (("near", local), ("far", far)):
        found = cover(match, "none", store)
        assert (found.local, found.blocks) == (own, max(own, near, far))
    assert cover(match, "worker", "near").blocks == max(engine, near, far)
    while index.sweep(3):
        pass
    kept = {one for objects in truth.held.values() for one in objects}
    assert len(index) == len(kept)


def test_a_chain_that_only_a_window_covers_is_found_behind_its_gap(make_table: MakeTable) -> None:
    index = PrefixIndex(table=make_table())
    rules = CutRules((WINDOW,), 4)
    index.add_blocks("near", DRAM, KEYS[5:8])
    match = index.match_cuts(pack(KEYS), rules, 47)
    assert cover(match, "none", "near").local == 8
    assert index.match_cuts(pack(KEYS), rules, 20).runs == []


@pytest.mark.parametrize("window", [[], [8, 9]])
def test_a_window_bounds_what_full_attention_offers(
    make_table: MakeTable, window: list[int]
) -> None:
    index = PrefixIndex(table=make_table())
    rules = CutRules((FULL, WINDOW), 4)
    index.add_blocks("near", DRAM, KEYS)
    index.add_blocks("near", DRAM, [KEYS[block] for block in window], 1)
    found = cover(index.match_cuts(pack(KEYS), rules, 47), "none", "near")
    assert found.local == (10 if window else 0)


def test_groups_beyond_any_model_are_ignored() -> None:
    index = PrefixIndex()
    index.add_blocks("near", DRAM, KEYS, MAX_GROUPS)
    index.remove_blocks("near", DRAM, KEYS, MAX_GROUPS)
    assert len(index) == 0


def test_one_group_takes_one_table(make_table: MakeTable) -> None:
    index = PrefixIndex(table=make_table())
    rules = CutRules((FULL,), 4)
    for slot, count in product(SLOTS, (3, 9)):
        index.add_blocks(*slot, KEYS[:count])
    cuts = index.match_cuts(pack(KEYS), rules, 48)
    plain = index.match_packed(pack(KEYS))
    for worker, store in product(("worker", "none"), ("near", "far", "")):
        assert cover(cuts, worker, store) == cover(plain, worker, store)
