"""What a placement looks at does not grow with the tier."""

from collections.abc import Callable

import pytest

from baton.kv.objects import ObjectId
from services.kvstore.disk.file import GRANULE_BYTES, SLAB_BYTES
from services.kvstore.disk.index import DiskEntry, DiskIndex
from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.cost_aware import CostAwareOrder
from services.kvstore.eviction.lru import Lru
from services.kvstore.memory.slab_allocator import MAX_LOOKS
from services.kvstore.memory.slot import Slot
from tests.support.work import lines_run

PER_SLAB = SLAB_BYTES // GRANULE_BYTES
SLABS = (8, 80)
ROUNDS = 64


def place(index: DiskIndex, number: int, cost: float, size: int = GRANULE_BYTES) -> DiskEntry:
    name = ObjectId(b"L" * 16, number.to_bytes(16, "big"))
    slot = Slot(
        object_id=name,
        slot_bytes=size,
        object_bytes=size,
        cost=cost,
        generation=0,
        writer=None,
        deadline=0.0,
        digest=b"",
    )
    placed = index.place(slot)
    assert placed is not None
    return placed[0]


def full_disk(slabs: int, cost: float) -> tuple[DiskIndex, list[DiskEntry]]:
    index = DiskIndex(slabs * SLAB_BYTES)
    entries = [place(index, number, cost) for number in range(slabs * PER_SLAB)]
    for entry in entries:
        index.written(entry)
    return index, entries


def grows(work: Callable[[int], int]) -> float:
    """How much more is done at the larger size."""
    small, large = (work(slabs) for slabs in SLABS)
    return large / small


def test_what_is_being_written_costs_no_look_though_it_is_worth_least() -> None:
    def work(slabs: int) -> int:
        index, _ = full_disk(slabs, cost=10.0)

        def write() -> None:
            for number in range(ROUNDS):
                place(index, 1_000_000 + number, cost=0.1)

        lines = lines_run(write)
        assert index.evictions == ROUNDS
        return lines

    assert grows(work) < 1.5


def test_another_size_looks_at_a_few_spans_though_none_is_free() -> None:
    def work(slabs: int) -> int:
        index, entries = full_disk(slabs, cost=1.0)
        for entry in entries[PER_SLAB - 1 :: PER_SLAB]:
            index.begin_read(entry)  # one of each span
        name = ObjectId(b"L" * 16, b"n" * 16)
        size = 2 * GRANULE_BYTES
        slot = Slot(
            object_id=name,
            slot_bytes=size,
            object_bytes=size,
            generation=0,
            writer=None,
            deadline=0.0,
        )

        def write() -> None:
            for _ in range(ROUNDS):
                assert index.place(slot) is None

        lines = lines_run(write)
        index.end_read(entries[-1])
        assert any(index.place(slot) for _ in range(slabs // MAX_LOOKS + 1))
        return lines

    assert grows(work) < 3  # eight slabs are fewer than are looked at


@pytest.mark.parametrize("kind", [CostAwareOrder, Lru])
def test_being_pinned_is_no_use(kind: type[Order]) -> None:
    order, entries = kind(), []
    for number in range(3):
        name = ObjectId(b"L" * 16, number.to_bytes(16, "big"))
        entries.append(Entry(object_id=name, slot_bytes=1))
        order.add(entries[-1], number + 1)
    rank = entries[0].rank
    entries[0].pinned = True
    for _ in range(3):
        assert order.first() is entries[1]
    assert (entries[0].rank, len(order)) == (rank, 3)
    entries[0].pinned = False
    order.unpin(entries[0])
    assert order.first() is entries[0]
