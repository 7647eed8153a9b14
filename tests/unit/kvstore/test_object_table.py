"""The object table against a simple model: no slot in two hands, counts exact, caps hold."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.internal.v1.kvevents_pb2 import TIER_DRAM
from baton.kv.events.log import EventLog
from baton.kv.events.replica import BlockSpace
from baton.kv.objects import ObjectId
from services.kvstore.block_events import BlockEventPublisher
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slab_allocator import SlabAllocator
from services.kvstore.memory.slot import Lease, Slot, SlotRefusal, SlotState
from tests.support.examples import examples

PAGE = 4096
SLAB = 4 * PAGE
SLABS = 12
RESERVATION, LEASE, PARTIAL = 10.0, 7.0, 20.0
LAYOUT = b"L" * 16


def object_id(number: int) -> ObjectId:
    return ObjectId(LAYOUT, bytes([number]) * 16)


def make_table(slabs: int = SLABS) -> tuple[ObjectTable, EventLog]:
    log = EventLog("epoch")
    generations = [0] * (slabs * SLAB // PAGE)

    def carve(offset: int, size: int) -> None:
        for page in range(offset // PAGE, (offset + size) // PAGE):
            generations[page] += 1

    table = ObjectTable(
        SlabAllocator(slabs * SLAB, SLAB, on_carve=carve),
        generations,
        [BlockEventPublisher(log)],
        reservation_seconds=RESERVATION,
        lease_seconds=LEASE,
        partial_seconds=PARTIAL,
    )
    return table, log


class Table(RuleBasedStateMachine):
    """Keeps its own lists of who holds what, and compares after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.log = make_table()
        self.now = 0.0
        self.reserved: list[Slot] = []
        self.quarantined: list[Slot] = []
        self.leases: list[Lease] = []
        self.seen: dict[int, int] = {}
        """Last generation of each place."""

    @rule(
        number=st.integers(0, 15),
        pages=st.sampled_from([1, 1, 1, 3, 4, 9]),
        partial=st.booleans(),
        writer=st.sampled_from([None, "a", "b"]),
    )
    def reserve(self, number: int, pages: int, partial: bool, writer: str | None) -> None:
        present = self.table.get(object_id(number)) is not None
        pinned = self.table.pinned_bytes
        (slot,) = self.table.reserve(
            [object_id(number)], pages * PAGE - 5, now=self.now, partial=partial, writer=writer
        )
        if present:
            assert slot is SlotRefusal.PRESENT
        elif pinned + pages * PAGE > self.table.cap_bytes:
            assert slot is SlotRefusal.EXHAUSTED
        if isinstance(slot, Slot):
            assert slot.generation > self.seen.get(slot.offset, 0)
            self.seen[slot.offset] = slot.generation
            self.reserved.append(slot)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(slot)
        first = self.table.get(slot.object_id) is None
        assert bool(self.table.commit([slot], [b"d" * 16], self.now)) is first
        assert self.table.get(slot.object_id) is not None
        if first:
            assert self.table.get(slot.object_id) is slot

    @precondition(lambda self: self.reserved or self.quarantined)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.reserved + self.quarantined))
        (self.reserved if slot in self.reserved else self.quarantined).remove(slot)
        self.table.reservations.abandon(slot)
        self.table.reservations.abandon(slot)  # a second time changes nothing

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def expire_slot(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.reserved))
        self.reserved.remove(slot)
        self.table.reservations.expire_slot(slot)
        if slot.writer is not None:
            self.quarantined.append(slot)

    @rule(writer=st.sampled_from(["a", "b"]))
    def bury(self, writer: str) -> None:
        gone = [slot for slot in self.quarantined if slot.writer == writer]
        assert self.table.reservations.release_writer(writer) == len(gone)
        self.quarantined = [slot for slot in self.quarantined if slot.writer != writer]

    @rule(number=st.integers(0, 15))
    def lease(self, number: int) -> None:
        slot = self.table.get(object_id(number))
        lease = self.table.lease(object_id(number), self.now)
        if slot is None:
            assert lease is SlotRefusal.ABSENT
        elif isinstance(lease, Lease):
            assert lease.slot is slot
            self.leases.append(lease)
        else:
            assert lease is SlotRefusal.EXHAUSTED
            assert self.table.pinned_bytes + slot.slot_bytes > self.table.cap_bytes

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), bad=st.booleans())
    def release(self, data: st.DataObject, bad: bool) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        self.leases.remove(lease)
        if bad:
            self.table.report_bad(lease)
            assert self.table.get(lease.slot.object_id) is not lease.slot
        else:
            self.table.release(lease)
        self.table.release(lease)

    @rule(seconds=st.sampled_from([0.1, 3.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        slots, leases = self.table.expire(self.now)
        assert set(slots) == {slot for slot in self.reserved if slot.deadline <= self.now}
        assert set(leases) == {lease for lease in self.leases if lease.deadline <= self.now}
        self.reserved = [slot for slot in self.reserved if slot not in slots]
        self.quarantined += [slot for slot in slots if slot.writer is not None]
        self.leases = [lease for lease in self.leases if lease not in leases]

    @invariant()
    def counts_are_exact(self) -> None:
        stats = self.table.stats()
        assert stats.reservations == len(self.reserved)
        assert stats.leases == len(self.leases)
        assert stats.quarantined == len(self.quarantined)
        leased = {lease.slot for lease in self.leases}
        pinned = sum(slot.slot_bytes for slot in {*self.reserved, *leased})
        assert stats.pinned_bytes == pinned <= self.table.cap_bytes
        writing = Counter(slot.object_id for slot in self.reserved)
        assert all(
            self.table.reservations.is_writing(object_id(n)) == (writing[object_id(n)] > 0)
            for n in range(16)
        )

    @invariant()
    def no_place_is_in_two_hands(self) -> None:
        slots = self.table.slots()
        ranges = sorted((slot.offset, slot.offset + slot.slot_bytes) for slot in slots)
        assert all(a[1] <= b[0] for a, b in pairwise(ranges))
        held = {*self.reserved, *self.quarantined, *(lease.slot for lease in self.leases)}
        assert held <= set(slots)
        assert all(slot.state is SlotState.COMMITTED for slot in set(slots) - held)
        assert all(slot.state is SlotState.RESERVED for slot in self.reserved)
        assert all(slot.state is SlotState.QUARANTINED for slot in self.quarantined)

    @invariant()
    def the_event_log_agrees_with_the_contents(self) -> None:
        self.log.flush()
        committed = {
            slot.object_id.key for slot in self.table.slots() if slot.state is SlotState.COMMITTED
        }
        assert self.log.contents() == (
            {BlockSpace(LAYOUT, TIER_DRAM): committed} if committed else {}
        )
        assert self.table.stats().objects == len(committed)

    def teardown(self) -> None:
        for slot in [*self.reserved, *self.quarantined]:
            self.table.reservations.abandon(slot)
        for lease in self.leases:
            self.table.release(lease)
        stats = self.table.stats()
        assert (stats.reservations, stats.leases, stats.quarantined) == (0, 0, 0)
        assert stats.pinned_bytes == 0
        assert {slot.state for slot in self.table.slots()} <= {SlotState.COMMITTED}
        # Only the cache is left, and all of it can be evicted.
        self.table.reserve([object_id(99)], SLABS * SLAB // 2, now=self.now)
        assert self.table.stats().reservations == 1


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=examples(24), stateful_step_count=50)


def put(table: ObjectTable, number: int, now: float = 0.0, **more: object) -> Slot:
    (slot,) = table.reserve([object_id(number)], PAGE, now=now, **more)  # type: ignore[arg-type]
    assert isinstance(slot, Slot)
    assert table.commit([slot], [b"d" * 16], now)
    return slot


def test_the_least_recently_used_goes_first() -> None:
    table, _ = make_table(2)
    for number in range(8):
        put(table, number)
    lease = table.lease(object_id(0), 0.0)
    assert isinstance(lease, Lease)
    table.release(lease)  # used just now
    table.reserve([object_id(1)], PAGE, now=0.0)  # asked for just now: present
    put(table, 8)
    assert table.get(object_id(2)) is None
    assert all(table.get(object_id(n)) for n in (0, 1, 3, 4, 5, 6, 7, 8))


def test_partial_blocks_go_first_and_live_briefly() -> None:
    table, _ = make_table(2)
    for number in range(7):
        put(table, number)
    put(table, 7, partial=True)
    put(table, 8)
    assert table.get(object_id(7)) is None
    assert table.get(object_id(0)) is not None
    put(table, 9, partial=True)
    table.expire(PARTIAL - 1)
    assert table.get(object_id(9)) is not None
    table.expire(PARTIAL)
    assert table.get(object_id(9)) is None


def test_what_is_leased_is_never_evicted() -> None:
    table, _ = make_table(2)
    leases = []
    for number in range(4):
        put(table, number)
        leases.append(table.lease(object_id(number), 0.0))
    for number in range(4, 20):
        # The cap is reached: nothing can be reserved until a lease is given back.
        assert table.reserve([object_id(number)], PAGE, now=0.0) == [SlotRefusal.EXHAUSTED]
    assert isinstance(leases[0], Lease)
    table.release(leases[0])
    for number in range(4, 20):
        put(table, number)
    assert all(table.get(object_id(number)) for number in (1, 2, 3))


def test_a_layout_of_another_size_takes_over_from_one_that_is_not_used() -> None:
    table, _ = make_table(4)
    for number in range(16):
        put(table, number)
    (slot,) = table.reserve([object_id(100)], 2 * SLAB, now=0.0)
    assert isinstance(slot, Slot)
    assert sum(table.get(object_id(n)) is not None for n in range(16)) == 8


def test_quarantine_gives_quota_back_and_the_place_only_after_death() -> None:
    table, _ = make_table(2)
    slots = table.reserve([object_id(n) for n in range(4)], PAGE, now=0.0, writer="w")
    assert table.reserve([object_id(9)], PAGE, now=0.0) == [SlotRefusal.EXHAUSTED]
    table.expire(RESERVATION)
    assert table.pinned_bytes == 0
    places = {slot.offset for slot in slots if isinstance(slot, Slot)}
    for number in range(20, 60):
        assert put(table, number, RESERVATION).offset not in places
    assert table.reservations.release_writer("w") == 4
    assert {put(table, n, RESERVATION).offset for n in range(60, 64)} == places


def test_a_bad_object_is_dropped_while_others_still_read_it() -> None:
    table, _ = make_table(2)
    slot = put(table, 1)
    one, two = table.lease(object_id(1), 0.0), table.lease(object_id(1), 0.0)
    assert isinstance(one, Lease)
    assert isinstance(two, Lease)
    table.report_bad(one)
    assert table.get(object_id(1)) is None
    assert slot.state is SlotState.PENDING_FREE
    again = put(table, 1)
    assert again.offset != slot.offset
    table.report_bad(two)  # the object it was leased from is gone already
    assert table.get(object_id(1)) is again
    assert slot.state is SlotState.FREE
    assert table.stats().bad_objects == 1


def test_a_lapsed_lease_proves_nothing_about_an_object() -> None:
    table, _ = make_table(2)
    put(table, 1)
    lease = table.lease(object_id(1), 0.0)
    assert isinstance(lease, Lease)
    table.expire(LEASE)
    table.report_bad(lease)
    assert table.get(object_id(1)) is not None


def test_committing_what_is_not_reserved_is_an_error() -> None:
    table, _ = make_table(2)
    slot = put(table, 1)
    with pytest.raises(ValueError, match="committed, not reserved"):
        table.commit([slot], [b""], 0.0)
