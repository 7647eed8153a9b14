"""The object table: who holds which slot, exactly. No I/O, no clock; time comes as an argument.

Invariants, held by the tests:
- a place in the arena belongs to at most one slot, and its generation changes with every new one;
- pinned bytes (reserved slots, and slots with a lease) never exceed the cap, half of the arena;
- reserving never waits; the first commit of an object wins;
- a lapsed slot gives its quota back at once and its place only once its writer is proven dead, or
  has said itself that it will not write any more;
- whatever is taken is given back exactly once.
"""

from collections.abc import Hashable, Sequence
from typing import Any

from baton.kv.arena.file import PAGE_BYTES
from baton.kv.objects import ObjectId
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.contents import ContentsListener, Generations, ReadIndex
from services.kvstore.memory.expiry import Deadlines
from services.kvstore.memory.quarantine import Quarantine
from services.kvstore.memory.slab_allocator import SlabAllocator, slot_size
from services.kvstore.memory.slot import Lease, Refusal, Slot, State, TableStats
from services.kvstore.memory.space import SpaceAllocator


class ObjectTable:
    """See the module's text.

    Args:
        slabs: places slots; the table is its only user.
        generations: one counter per page of data, which readers see.
        listener: is told of contents.
        policy: what goes to make room; None: one without quotas.
        reservation_seconds: time to commit.
        lease_seconds: time to copy.
        partial_seconds: how long partial blocks are kept.
        index: is told of committed slots.
    """

    def __init__(
        self,
        slabs: SlabAllocator,
        generations: Generations,
        listener: ContentsListener,
        *,
        index: ReadIndex | None = None,
        reservation_seconds: float,
        lease_seconds: float,
        partial_seconds: float = 60.0,
        policy: EvictionPolicy[Slot] | None = None,
    ) -> None:
        self._generations = generations
        self._listener = listener
        self._index = index
        self._reservation_seconds = reservation_seconds
        self._lease_seconds = lease_seconds
        self._partial_seconds = partial_seconds
        self.cap_bytes = slabs.total_bytes // 2
        self.pinned_bytes = 0
        self._objects: dict[ObjectId, Slot] = {}
        self.policy = policy or EvictionPolicy[Slot](slabs.total_bytes)
        self._space = SpaceAllocator(slabs, self.policy)
        self._reserved = Deadlines[Slot]()
        self._leases = Deadlines[Lease]()
        self._partials = Deadlines[Slot]()
        self._quarantine = Quarantine()
        self._writers_of: dict[ObjectId, int] = {}
        self._committed_bytes = 0
        self._bad = 0
        self._evictions = 0

    # Writing

    def reserve(self, object_id: ObjectId, object_bytes: int, **more: Any) -> Slot | Refusal:
        """`reserve_all` for one object."""
        return self.reserve_all([object_id], object_bytes, **more)[0]

    def reserve_all(
        self,
        object_ids: Sequence[ObjectId],
        object_bytes: int,
        *,
        now: float,
        partial: bool = False,
        writer: Hashable | None = None,
        tenant: str = "",
        cost: float = 1.0,
    ) -> list[Slot | Refusal]:
        """Per object a slot to write it to, PRESENT or EXHAUSTED. Several may write the same one.

        Args:
            object_ids: the objects.
            object_bytes: the length of each, above 0.
            now: the time.
            partial: the last one holds a partial block.
            writer: who may write at any time; None: only this loop itself writes.
            tenant: whose share they are counted on.
            cost: as `Entry.cost`.
        """
        answers: list[Slot | Refusal] = [Refusal.EXHAUSTED] * len(object_ids)
        objects, writers = self._objects, self._writers_of
        missing = [index for index, name in enumerate(object_ids) if name not in objects]
        if len(missing) < len(object_ids):
            for index in set(range(len(object_ids))).difference(missing):
                answers[index] = Refusal.PRESENT
                self.policy.use(objects[object_ids[index]])
        size = slot_size(object_bytes)
        count = min(len(missing), (self.cap_bytes - self.pinned_bytes) // size)
        offsets = self._space.find_all(count, size, tenant, self._evict_all)
        deadline = now + self._reservation_seconds
        slots = []
        for index, offset in zip(missing, offsets, strict=False):
            object_id, page = object_ids[index], offset // PAGE_BYTES
            self._generations[page] = generation = self._generations[page] + 1
            answers[index] = slot = Slot(
                object_id=object_id,
                slot_bytes=size,
                tenant=tenant,
                cost=cost,
                partial=partial and index == len(object_ids) - 1,
                object_bytes=object_bytes,
                offset=offset,
                generation=generation,
                writer=writer,
                deadline=deadline,
            )
            slots.append(slot)
            writers[object_id] = writers.get(object_id, 0) + 1
        self._space.put(*slots)
        self._reserved.add(*slots)
        self.pinned_bytes += len(offsets) * size
        return answers

    def commit(self, slot: Slot, digest: bytes, now: float) -> bool:
        """`commit_all` for one slot: whether it was the first."""
        return bool(self.commit_all([slot], [digest], now))

    def commit_all(self, slots: Sequence[Slot], digests: Sequence[bytes], now: float) -> list[Slot]:
        """Make RESERVED slots readable; answers those whose objects nobody had committed before."""
        first = []
        objects, committed = self._objects, State.COMMITTED
        self._unreserve(*slots)
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
        self._listener.stored(*[slot.object_id for slot in first])
        if self._index is not None:
            self._index.add(*first)
        return first

    def abandon(self, slot: Slot) -> None:
        """The writer says that it writes no more: a RESERVED or QUARANTINED slot is free at once.

        No error for one that is free already.
        """
        if slot.state is State.RESERVED:
            self._unreserve(slot)
            self._free(slot)
        elif slot.state is State.QUARANTINED:
            self._quarantine.remove(slot)
            self._free(slot)

    def expire_slot(self, slot: Slot) -> None:
        """The writer was not heard of: a RESERVED slot gives its quota back, not yet its place."""
        self._unreserve(slot)
        if slot.writer is None:
            self._free(slot)
        else:
            self._quarantine.add(slot)

    def release_writer(self, writer: Hashable) -> int:
        """The writer is proven dead: frees its quarantined slots; answers how many."""
        slots = self._quarantine.release(writer)
        self._free(*slots)
        return len(slots)

    def being_written(self, object_id: ObjectId) -> bool:
        """Whether somebody has a slot reserved for the object."""
        return object_id in self._writers_of

    # Reading

    def get(self, object_id: ObjectId) -> Slot | None:
        """The committed slot of an object."""
        return self._objects.get(object_id)

    def use(self, object_id: ObjectId) -> Slot | None:
        """The object was read without a lease, which counts as used; None where it is gone."""
        slot = self._objects.get(object_id)
        if slot is not None:
            self.policy.use(slot)
        return slot

    def lease(self, object_id: ObjectId, now: float, *, use: bool = True) -> Lease | Refusal:
        """Hold a committed object; ABSENT, or EXHAUSTED where the cap leaves no room.

        `use` says whether somebody asked for it, as opposed to the store's own doings.
        """
        slot = self._objects.get(object_id)
        if slot is None:
            return Refusal.ABSENT
        if not slot.leases:
            if self.pinned_bytes + slot.slot_bytes > self.cap_bytes:
                return Refusal.EXHAUSTED
            self.pinned_bytes += slot.slot_bytes
            self.policy.pin(slot)
        if use:
            self.policy.use(slot)
        slot.leases += 1
        lease = Lease(slot, now + self._lease_seconds)
        self._leases.add(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """Give a lease back; no error for one that lapsed."""
        if not lease.live:
            return
        lease.live = False
        self._leases.remove(lease)
        slot = lease.slot
        slot.leases -= 1
        if slot.leases:
            return
        self.pinned_bytes -= slot.slot_bytes
        if slot.state is State.PENDING_FREE:
            self._free(slot)
        else:
            self.policy.unpin(slot)

    def report_bad(self, lease: Lease) -> None:
        """A reader found a leased object wrong: drop it, and the lease. Lapsed ones change nothing.

        One that lapsed may have been overwritten rightfully, so it proves nothing.
        """
        if not lease.live:
            return
        if lease.slot.state is State.COMMITTED:
            self._bad += 1
            self.drop(lease.slot)
        self.release(lease)

    # Going

    def evict(self, slot: Slot) -> None:
        """Drop a committed object for lack of room or because it has had its time."""
        self._evict_all([slot])

    def drop(self, *slots: Slot, evicted: bool = False) -> None:
        """Committed objects are no longer readable; places are free once nobody leases them."""
        if self._index is not None:
            self._index.remove(*slots)
        for slot in slots:
            del self._objects[slot.object_id]
            self._committed_bytes -= slot.object_bytes
            if slot.partial:
                self._partials.remove(slot)
        self.policy.remove(*slots, evicted=evicted)
        self._listener.gone(*[slot.object_id for slot in slots])
        for slot in slots:
            if slot.leases:
                slot.state = State.PENDING_FREE
        self._free(*[slot for slot in slots if not slot.leases])

    # Time

    def expire(self, now: float) -> tuple[list[Slot], list[Lease]]:
        """Let lapse what is due; answers the reservations and the leases that did."""
        slots = self._reserved.due(now)
        for slot in slots:
            self.expire_slot(slot)
        leases = self._leases.due(now)
        for lease in leases:
            self.release(lease)
        self._evict_all(self._partials.due(now))
        return slots, leases

    # Facts

    def stats(self) -> TableStats:
        return TableStats(
            capacity_bytes=self._space.capacity_bytes,
            committed_bytes=self._committed_bytes,
            objects=len(self._objects),
            leases=len(self._leases),
            reservations=len(self._reserved),
            quarantined=len(self._quarantine),
            pinned_bytes=self.pinned_bytes,
            bad_objects=self._bad,
            evictions=self._evictions,
        )

    def slots(self) -> list[Slot]:
        """Every slot that is not free."""
        return list(self._space.at.values())

    def objects(self) -> list[Slot]:
        """Every committed slot."""
        return list(self._objects.values())

    @property
    def free_bytes(self) -> int:
        """Bytes without a slot, in whatever pieces."""
        return self._space.free_bytes

    # Inside

    def _unreserve(self, *slots: Slot) -> None:
        writers, reserved = self._writers_of, State.RESERVED
        for slot in slots:
            if slot.state is not reserved:
                raise ValueError(f"the slot is {slot.state.value}, not reserved")
            self.pinned_bytes -= slot.slot_bytes
            left = writers.pop(slot.object_id) - 1
            if left:
                writers[slot.object_id] = left
        self._reserved.remove(*slots)

    def _evict_all(self, slots: Sequence[Slot]) -> None:
        self._evictions += len(slots)
        self.drop(*slots, evicted=True)

    def _free(self, *slots: Slot) -> None:
        free = State.FREE
        for slot in slots:
            slot.state = free
        self._space.give_back(*slots)
