"""The object table: which slot holds which object, and when it is written, read or evicted.

Invariants, held by the tests:
- a place in the arena belongs to at most one slot, and its generation changes with every new one;
- pinned bytes (reserved slots, and slots with a lease) never exceed the cap, half of the arena;
- reserving never waits; the first commit of an object wins;
- an expired reservation returns its quota immediately, and its place only once its writer is proven
dead or has released it;
- everything taken is released exactly once.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from baton.kv.objects import ObjectId
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.expiry import Deadlines
from services.kvstore.memory.leases import Leases
from services.kvstore.memory.reservations import Reservations
from services.kvstore.memory.slab_allocator import SlabAllocator, slot_size
from services.kvstore.memory.slot import Lease, Slot, SlotRefusal, SlotState, TableStats
from services.kvstore.memory.space import SpaceAllocator


class TableListener(Protocol):
    """Follows which slots are readable. Called in the order of the changes, as they happen."""

    def stored(self, slots: Sequence[Slot]) -> None:
        """Record that slots became readable."""

    def removed(self, slots: Sequence[Slot]) -> None:
        """Record that slots are about to become unreadable."""


class ObjectTable:
    """Reserves, commits, leases and evicts the slots of one arena.

    Owned by the store, on its event loop. No I/O and no clock: time is an argument. Bounded by the
    arena: each slot takes at least one page of it.

    Args:
        slabs: places slots; used by the table only.
        generations: one counter per page of data, visible to readers.
        listeners: notified of every change, in this order.
        policy: decides what is evicted; None: a policy without quotas.
        reservation_seconds: time for a writer to commit.
        lease_seconds: time for a reader to copy.
        partial_seconds: how long partial blocks are kept.
    """

    def __init__(
        self,
        slabs: SlabAllocator,
        generations: memoryview | list[int],
        listeners: Sequence[TableListener] = (),
        *,
        reservation_seconds: float,
        lease_seconds: float,
        partial_seconds: float = 60.0,
        policy: EvictionPolicy[Slot] | None = None,
    ) -> None:
        self._listeners = listeners
        self._partial_seconds = partial_seconds
        self.cap_bytes = slabs.total_bytes // 2
        self.policy = policy or EvictionPolicy[Slot](slabs.total_bytes)
        self._space = SpaceAllocator(slabs, self.policy)
        self._objects: dict[ObjectId, Slot] = {}
        self.reservations = Reservations(generations, reservation_seconds, self._free)
        self._leases = Leases(self.policy, lease_seconds, self._free)
        self._partials = Deadlines[Slot]()
        self._committed_bytes = self._bad = self._evictions = 0

    @property
    def pinned_bytes(self) -> int:
        """Bytes of slots that are reserved or leased."""
        return self.reservations.reserved_bytes + self._leases.leased_bytes

    # Writing

    def reserve(
        self,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        *,
        now: float,
        partial: bool = False,
        writer: Hashable | None = None,
        tenant: str = "",
        cost: float = 1.0,
    ) -> list[Slot | SlotRefusal]:
        """Return a slot, PRESENT or EXHAUSTED per object; several may write the same object.

        Args:
            object_ids: the objects.
            object_bytes: the length of each, above 0.
            now: the time.
            partial: whether the last one holds a partial block.
            writer: a process that may write at any time; None: only the event loop itself writes.
            tenant: charged for the objects.
            cost: as `Entry.cost`.
        """
        answers: list[Slot | SlotRefusal] = [SlotRefusal.EXHAUSTED] * len(object_ids)
        objects = self._objects
        missing = [index for index, name in enumerate(object_ids) if name not in objects]
        if len(missing) < len(object_ids):
            for index in set(range(len(object_ids))).difference(missing):
                answers[index] = SlotRefusal.PRESENT
                self.policy.use(objects[object_ids[index]])
        size = slot_size(object_bytes)
        count = min(len(missing), (self.cap_bytes - self.pinned_bytes) // size)
        offsets = self._space.find_all(count, size, tenant, self._evict_all)
        names = [object_ids[index] for index in missing[: len(offsets)]]
        slots = self.reservations.add(
            names, offsets, object_bytes, size, now=now, writer=writer, tenant=tenant, cost=cost
        )
        for index, slot in zip(missing, slots, strict=False):
            answers[index] = slot
        if partial and slots and slots[-1] is answers[-1]:
            slots[-1].partial = True
        self._space.put(*slots)
        return answers

    def commit(self, slots: Sequence[Slot], digests: Sequence[bytes], now: float) -> list[Slot]:
        """Make RESERVED slots readable; return those that were the first of their object."""
        first = []
        objects, committed = self._objects, SlotState.COMMITTED
        self.reservations.remove(slots)
        for slot, digest in zip(slots, digests, strict=True):
            if objects.setdefault(slot.object_id, slot) is not slot:
                self._free(slot)
                continue
            slot.state = committed
            slot.digest = digest
            self._committed_bytes += slot.object_bytes
            if slot.partial:
                slot.deadline = now + self._partial_seconds
                self._partials.add(slot)
            first.append(slot)
        self.policy.add(*first)
        for listener in self._listeners:
            listener.stored(first)
        return first

    # Reading

    def get(self, object_id: ObjectId) -> Slot | None:
        """Return the committed slot of an object."""
        return self._objects.get(object_id)

    def use(self, object_id: ObjectId) -> Slot | None:
        """Count a read without a lease as a use; return the slot, None if it is gone."""
        slot = self._objects.get(object_id)
        if slot is not None:
            self.policy.use(slot)
        return slot

    def lease(self, object_id: ObjectId, now: float, *, use: bool = True) -> Lease | SlotRefusal:
        """Lease a committed object; ABSENT, or EXHAUSTED if the cap is reached.

        `use` counts it as a use of the object: False for the store's own purposes.
        """
        slot = self._objects.get(object_id)
        if slot is None:
            return SlotRefusal.ABSENT
        if not slot.leases and self.pinned_bytes + slot.slot_bytes > self.cap_bytes:
            return SlotRefusal.EXHAUSTED
        if use:
            self.policy.use(slot)
        return self._leases.add(slot, now)

    def release(self, lease: Lease) -> None:
        """Release a lease; one that expired changes nothing."""
        self._leases.release(lease)

    def report_bad(self, lease: Lease) -> None:
        """Drop an object whose leased copy failed verification, and release the lease.

        One that expired changes nothing: the place may have been overwritten legitimately.
        """
        if not lease.live:
            return
        if lease.slot.state is SlotState.COMMITTED:
            self._bad += 1
            self.drop([lease.slot])
        self.release(lease)

    def evict(self, slot: Slot) -> None:
        """Drop a committed object to free space, or because it expired."""
        self._evict_all([slot])

    def drop(self, slots: Sequence[Slot], *, evicted: bool = False) -> None:
        """Make committed objects unreadable; each place is free once no reader leases it."""
        for listener in self._listeners:
            listener.removed(slots)
        for slot in slots:
            del self._objects[slot.object_id]
            self._committed_bytes -= slot.object_bytes
            if slot.partial:
                self._partials.remove(slot)
        self.policy.remove(*slots, evicted=evicted)
        for slot in slots:
            if slot.leases:
                slot.state = SlotState.PENDING_FREE
        self._free(*[slot for slot in slots if not slot.leases])

    def expire(self, now: float) -> tuple[list[Slot], list[Lease]]:
        """Expire what is due; return the reservations and the leases among it."""
        slots, leases = self.reservations.expire(now), self._leases.expire(now)
        self._evict_all(self._partials.due(now))
        return slots, leases

    def stats(self) -> TableStats:
        """Return exact counts."""
        return TableStats(
            capacity_bytes=self._space.capacity_bytes,
            committed_bytes=self._committed_bytes,
            objects=len(self._objects),
            leases=len(self._leases),
            reservations=len(self.reservations),
            quarantined=self.reservations.quarantined,
            pinned_bytes=self.pinned_bytes,
            bad_objects=self._bad,
            evictions=self._evictions,
        )

    def slots(self) -> list[Slot]:
        """Return every slot that is not free."""
        return list(self._space.at.values())

    def objects(self) -> list[Slot]:
        """Return every committed slot."""
        return list(self._objects.values())

    @property
    def free_bytes(self) -> int:
        """Bytes without a slot, in pieces of any size."""
        return self._space.free_bytes

    def shrink(self, tenant: str, most: int) -> bool:
        """Evict as `SpaceAllocator.shrink` does."""
        return self._space.shrink(tenant, most, self._evict_all)

    def forget(self, tenant: str, most: int, erase: Callable[[Slot], None]) -> bool:
        """Evict all of a tenant, as `SpaceAllocator.shrink` does; `erase` overwrites each slot."""

        def evict(slots: Sequence[Slot]) -> None:
            self._evict_all(slots)
            for slot in slots:
                erase(slot)

        return self._space.shrink(tenant, most, evict, whole=True)

    def _evict_all(self, slots: Sequence[Slot]) -> None:
        self._evictions += len(slots)
        self.drop(slots, evicted=True)

    def _free(self, *slots: Slot) -> None:
        free = SlotState.FREE
        for slot in slots:
            slot.state = free
        self._space.give_back(*slots)
