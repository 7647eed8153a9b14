"""What a store evicts first is what served a cut and serves none, and nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError
from baton.internal.v1 import cluster_pb2
from baton.internal.v1 import kvstore_pb2 as pb
from baton.kv.cuts import CutRules
from baton.kv.keys import pack
from baton.kv.layout import GroupKind, KvGroup
from baton.kv.objects import ObjectId
from services.kvstore.api.chains import links_of
from services.kvstore.cut_eviction import CutEviction
from services.kvstore.eviction.cut_tracker import ChainLink, CutTracker
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Slot
from tests.support.examples import examples
from tests.unit.router.test_cut_match import rules_of_layouts

LAYOUT = b"L" * 16
TRUNK = 6
LENGTH = 10
BRANCHES = ("a", "b")
FULL = KvGroup(GroupKind.FULL, 16)
STATE = KvGroup(GroupKind.STATE, 16)


def key(branch: str, block: int) -> bytes:
    """Name a block of one of two chains that share their first blocks."""
    return f"{branch if block >= TRUNK else 't'}{block}".encode().ljust(16)


def link(rules: CutRules, branch: str, block: int) -> ChainLink:
    return ChainLink(rules, block, key(branch, block - 1) if block else bytes(16))


class Truth:
    """Objects that are there, and which of them serve a cut of some chain, by brute force."""

    def __init__(self, rules: CutRules) -> None:
        self.rules = rules
        self.there: set[tuple[bytes, int]] = set()
        self.have_served: set[tuple[bytes, int]] = set()

    def serving(self) -> set[tuple[bytes, int]]:
        serving = set()
        size = self.rules.block_tokens
        for branch in BRANCHES:

            def has(group: int, block: int, branch: str = branch) -> bool:
                return (key(branch, block), group) in self.there

            for cut in self.rules.allowed(has, LENGTH * size):
                for group, blocks in enumerate(self.rules.needed(cut)):
                    serving |= {(key(branch, block), group) for block in blocks}
        return serving

    def change(self, there: bool, name: tuple[bytes, int]) -> None:
        if there:
            self.there.add(name)
        else:
            self.there.discard(name)
            self.have_served.discard(name)
        self.have_served |= self.serving()

    def unneeded(self) -> set[tuple[bytes, int]]:
        return self.have_served & self.there - self.serving()


@dataclass
class Tracked:
    """A tracker, and what it told."""

    tracker: CutTracker
    demoted: set[tuple[bytes, int]]

    @classmethod
    def make(cls) -> "Tracked":
        demoted: set[tuple[bytes, int]] = set()

        def demote(name: ObjectId) -> None:
            assert (name.key, name.group) not in demoted
            demoted.add((name.key, name.group))

        def promote(name: ObjectId) -> None:
            demoted.remove((name.key, name.group))

        return cls(CutTracker(demote, promote), demoted)


@settings(max_examples=examples(80))
@given(st.data())
def test_those_that_lost_their_last_cut_are_told_of_and_no_others(data: st.DataObject) -> None:
    rules = data.draw(rules_of_layouts())
    truth, tracked = Truth(rules), Tracked.make()
    for _ in range(data.draw(st.integers(1, 8))):
        branch = data.draw(st.sampled_from(BRANCHES))
        if data.draw(st.integers(0, 2)):
            cut = data.draw(st.integers(1, LENGTH)) * rules.block_tokens
            names = [(g, block) for g, blocks in enumerate(rules.needed(cut)) for block in blocks]
            there = True
        else:
            groups = st.integers(0, len(rules.groups) - 1)
            names = data.draw(
                st.lists(st.tuples(groups, st.integers(0, LENGTH - 1)), min_size=1, max_size=4)
            )
            there = data.draw(st.booleans())
        for group, block in data.draw(st.permutations(names)):
            name = ObjectId(LAYOUT, key(branch, block), group)
            if there:
                tracked.tracker.add(name, link(rules, branch, block))
            else:
                tracked.demoted.discard((name.key, group))
                tracked.tracker.remove(name)
            truth.change(there, (name.key, group))
            assert tracked.demoted == truth.unneeded()
    for block_key, group in sorted(truth.there):
        tracked.demoted.discard((block_key, group))
        tracked.tracker.remove(ObjectId(LAYOUT, block_key, group))
    assert len(tracked.tracker) == len(tracked.tracker.unneeded) == 0
    assert not tracked.tracker._layouts


def put(table: ObjectTable, cuts: CutEviction, rules: CutRules, branch: str, cut: int) -> None:
    """Store a cut as a worker does: group by group, each with its own size of objects."""
    for group, blocks in enumerate(rules.needed(cut * rules.block_tokens)):
        names = [ObjectId(LAYOUT, key(branch, block), group) for block in blocks]
        slots = table.reserve(names, (1 + 3 * group) * 4096, now=0.0)
        cuts.reserved(names, slots, [link(rules, branch, block) for block in blocks])
        new = [slot for slot in slots if isinstance(slot, Slot)]
        table.commit(new, [b"d" * 16] * len(new), 0.0)


def cuts_of(table: ObjectTable, rules: CutRules, branch: str) -> list[int]:
    def has(group: int, block: int) -> bool:
        return table.get(ObjectId(LAYOUT, key(branch, block), group)) is not None

    return [cut // rules.block_tokens for cut in rules.allowed(has, LENGTH * rules.block_tokens)]


def make_table() -> tuple[ObjectTable, CutEviction]:
    cuts = CutEviction(lambda: None)
    table = ObjectTable(
        SlabAllocator(4 * 65536, 65536),
        [0] * 64,
        (cuts,),
        reservation_seconds=10,
        lease_seconds=10,
    )
    cuts.table = table
    return table, cuts


def test_what_lost_its_cut_makes_room_before_a_cut_that_is_older() -> None:
    rules = CutRules((FULL, STATE), 16)
    table, cuts = make_table()
    put(table, cuts, rules, "a", 10)
    put(table, cuts, rules, "b", 10)
    (state,) = [slot for slot in table.slots() if slot.object_id.key == key("b", 9)][1:]
    assert state.object_id.group == 1
    table.drop([state])
    assert cuts_of(table, rules, "b") == [0]
    assert cuts.unneeded == 4  # what the other chain does not share
    written = 0
    while cuts.unneeded and written < 100:
        (slot,) = table.reserve([ObjectId(LAYOUT, bytes([written]) * 16)], 4096, now=0.0)
        assert isinstance(slot, Slot)
        table.commit([slot], [b"d" * 16], 0.0)
        written += 1
    assert written > 10  # free places were taken first
    assert cuts.unneeded == 0
    assert cuts_of(table, rules, "a") == [0, 10]


def test_a_cut_that_returns_is_needed_again() -> None:
    rules = CutRules((FULL, STATE), 16)
    table, cuts = make_table()
    put(table, cuts, rules, "a", 10)
    (state,) = [slot for slot in table.slots() if slot.object_id.group]
    table.drop([state])
    assert cuts.unneeded == 10
    assert all(slot.unneeded for slot in table.slots())
    put(table, cuts, rules, "a", 10)
    assert cuts.unneeded == 0
    assert not any(slot.unneeded for slot in table.slots())


def message(**fields: object) -> pb.BlockChain:
    made = pb.BlockChain(
        groups=[cluster_pb2.KvGroup(kind="full", block_bytes=16)],
        block_tokens=16,
        blocks=[0, 1],
        previous=pack([bytes(16), key("a", 0)]),
    )
    for name, value in fields.items():
        made.ClearField(name)  # type: ignore[arg-type]
        made.MergeFrom(pb.BlockChain(**{name: value}))  # type: ignore[arg-type]
    return made


NAMES: Sequence[ObjectId] = [ObjectId(LAYOUT, key("a", block)) for block in range(2)]


def test_a_chain_names_the_block_that_each_one_continues() -> None:
    assert [(one.block, one.previous) for one in links_of(message(), NAMES)] == [
        (0, bytes(16)),
        (1, key("a", 0)),
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"groups": []}, "must have 1 to 64 groups"),
        ({"groups": [cluster_pb2.KvGroup(kind="new", block_bytes=1)]}, "'new' is not a valid"),
        ({"groups": [cluster_pb2.KvGroup(kind="window", block_bytes=1)]}, "span_tokens"),
        ({"block_tokens": 0}, "block_tokens must be above 0"),
        ({"blocks": [0]}, "a block and a previous key for each key"),
        ({"blocks": [0, -1]}, "blocks must be 0 to"),
        ({"previous": b"short"}, "a block and a previous key for each key"),
    ],
)
def test_a_malformed_chain_is_refused_by_a_sentence(fields: dict[str, object], says: str) -> None:
    with pytest.raises(BatonError, match=says):
        links_of(message(**fields), NAMES)


def test_an_object_of_a_group_that_the_layout_lacks_is_refused() -> None:
    with pytest.raises(BatonError, match="group must be below the number of groups, 1"):
        links_of(message(), [name._replace(group=1) for name in NAMES])
