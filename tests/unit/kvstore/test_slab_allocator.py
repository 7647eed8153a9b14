"""Slots never overlap, sizes live side by side, empty slabs return."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.kvstore.memory.slab_allocator import SlabAllocator, slot_size
from tests.support.examples import examples

PAGE = 4096
SLAB = 4 * PAGE


class Slabs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.carved: list[tuple[int, int]] = []
        self.slabs = SlabAllocator(
            16 * SLAB, SLAB, 4 * SLAB, lambda at, size: self.carved.append((at, size))
        )
        self.usable = 4 * SLAB
        self.used: dict[int, int] = {}

    @rule(
        size=st.sampled_from([PAGE, 2 * PAGE, 3 * PAGE, 4 * PAGE, 5 * PAGE, 11 * PAGE]),
        count=st.integers(1, 9),
    )
    def take(self, size: int, count: int) -> None:
        offsets = self.slabs.take(size, count)
        assert len(offsets) <= count
        if not offsets:
            # Nothing of this size fits into what is unused, or it is scattered.
            assert sum(self.used.values()) > 0 or size > self.usable
        for offset in offsets:
            assert offset % PAGE == 0
            assert offset + size <= self.usable
            assert all(offset + size <= at or at + s <= offset for at, s in self.used.items())
            assert any(at <= offset and offset + size <= at + s for at, s in self.carved)
            self.used[offset] = size
        if len(offsets) < count:
            assert self.slabs.take(size, 1) == []

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        offsets = data.draw(st.lists(st.sampled_from(sorted(self.used)), unique=True))
        for offset in offsets:
            del self.used[offset]
        self.slabs.give_back(*offsets)

    @precondition(lambda self: self.usable < 16 * SLAB)
    @rule()
    def grow(self) -> None:
        self.usable += 4 * SLAB
        self.slabs.grow(self.usable)

    @invariant()
    def spans_hold_exactly_what_is_used(self) -> None:
        used = {offset for span in self.slabs.spans() for offset in span.used}
        assert used == set(self.used)

    @invariant()
    def what_is_wasted_is_known(self) -> None:
        spans = list(self.slabs.spans())
        slots = sum((len(s.used) + len(s.free)) * s.slot_bytes for s in spans)
        assert self.slabs.wasted_bytes == sum(s.slabs for s in spans) * SLAB - slots

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Another allocator takes over what is used, in any order, and nothing that contradicts."""
        known = [
            (self.slabs.span(offset).start, size, offset) for offset, size in self.used.items()
        ]
        slabs = SlabAllocator(
            16 * SLAB, SLAB, self.usable, lambda at, s: self.carved.append((at, s))
        )
        for start, size, offset in data.draw(st.permutations(known)):
            assert slabs.adopt(start, size, offset)
            assert not slabs.adopt(start, size, offset)
            assert not slabs.adopt(start, size + PAGE, offset)
            assert not slabs.adopt(start, size, offset + PAGE // 2)
        assert not slabs.adopt(16 * SLAB, PAGE, 16 * SLAB)
        assert not slabs.adopt(PAGE, PAGE, PAGE)
        self.slabs = slabs

    def teardown(self) -> None:
        for offset in list(self.used):
            self.slabs.give_back(offset)
        # Everything is free again: the largest slot fits.
        assert list(self.slabs.spans()) == []
        assert self.slabs.take(self.usable, 1) == [0]


TestSlabs = Slabs.TestCase
TestSlabs.settings = settings(max_examples=examples(24), stateful_step_count=40)


def test_spans_of_awkward_sizes_waste_at_most_an_eighth() -> None:
    slabs = SlabAllocator(1024 * SLAB, SLAB)
    for pages in range(1, 40):
        (offset,) = slabs.take(pages * PAGE, 1)
        span = slabs.span(offset)
        size = span.slabs * SLAB
        assert (size % span.slot_bytes) * 8 <= size


def test_giving_back_what_is_not_used_is_an_error() -> None:
    slabs = SlabAllocator(4 * SLAB, SLAB)
    (offset,) = slabs.take(PAGE, 1)
    slabs.give_back(offset)
    with pytest.raises(KeyError):
        slabs.give_back(offset)


def test_slot_sizes_are_whole_pages() -> None:
    assert [slot_size(n) for n in (1, PAGE, PAGE + 1)] == [PAGE, PAGE, 2 * PAGE]
