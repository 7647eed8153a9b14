"""Slots that a writer may write to: reserved ones, and expired ones in quarantine."""

from collections.abc import Callable, Hashable, Iterable, Sequence

from baton.kv.arena.file import PAGE_BYTES
from baton.kv.objects import ObjectId
from services.kvstore.memory.expiry import Deadlines
from services.kvstore.memory.slot import Slot, SlotState


class Reservations:
    """Slots that are not committed, by deadline, by object and by writer. Owned by ObjectTable.

    An expired slot stays in quarantine until its writer is proven dead or releases it: no other
    slot uses its place before. Bounded by the table's cap and by the size of the arena.

    Args:
        generations: one counter per page of data, visible to readers.
        seconds: time for a writer to commit.
        free: frees the places of slots.
    """

    def __init__(
        self,
        generations: memoryview | list[int],
        seconds: float,
        free: Callable[..., None],
    ) -> None:
        self._generations = generations
        self._seconds = seconds
        self._free = free
        self.reserved_bytes = 0
        self.quarantined = 0
        """Slots in quarantine."""
        self._reserved = Deadlines[Slot]()
        self._writing: dict[ObjectId, int] = {}
        """Number of reserved slots of each object that has any."""
        self._quarantine: dict[Hashable, set[Slot]] = {}

    def __len__(self) -> int:
        """Return the number of reserved slots."""
        return len(self._reserved)

    def add(
        self,
        object_ids: Iterable[ObjectId],
        offsets: Iterable[int],
        object_bytes: int,
        slot_bytes: int,
        *,
        now: float,
        writer: Hashable | None,
        tenant: str,
        cost: float,
    ) -> list[Slot]:
        """Return a new reserved slot for each object, at each offset."""
        generations, writing = self._generations, self._writing
        deadline = now + self._seconds
        slots = []
        for object_id, offset in zip(object_ids, offsets, strict=True):
            page = offset // PAGE_BYTES
            generations[page] = generation = generations[page] + 1
            slot = Slot(
                object_id=object_id,
                slot_bytes=slot_bytes,
                tenant=tenant,
                cost=cost,
                object_bytes=object_bytes,
                offset=offset,
                generation=generation,
                writer=writer,
                deadline=deadline,
            )
            slots.append(slot)
            writing[object_id] = writing.get(object_id, 0) + 1
        self._reserved.add(*slots)
        self.reserved_bytes += len(slots) * slot_bytes
        return slots

    def remove(self, slots: Sequence[Slot]) -> None:
        """Remove slots that are committed, released or expired.

        Raises:
            ValueError: one is not reserved.
        """
        writing, reserved = self._writing, SlotState.RESERVED
        for slot in slots:
            if slot.state is not reserved:
                raise ValueError(f"the slot is {slot.state.value}, not reserved")
            self.reserved_bytes -= slot.slot_bytes
            left = writing.pop(slot.object_id) - 1
            if left:
                writing[slot.object_id] = left
        self._reserved.remove(*slots)

    def is_writing(self, object_id: ObjectId) -> bool:
        """Return whether a slot is reserved for the object."""
        return object_id in self._writing

    def abandon(self, slot: Slot) -> None:
        """Free a slot immediately that its writer released; no error if it is free already."""
        if slot.state is SlotState.RESERVED:
            self.remove([slot])
        elif slot.state is SlotState.QUARANTINED:
            held = self._quarantine[slot.writer]
            held.remove(slot)
            self.quarantined -= 1
            if not held:
                del self._quarantine[slot.writer]
        else:
            return
        self._free(slot)

    def expire_slot(self, slot: Slot) -> None:
        """End a silent writer's reservation: returns its quota, but not its place yet."""
        self.remove([slot])
        if slot.writer is None:
            self._free(slot)
            return
        slot.state = SlotState.QUARANTINED
        self._quarantine.setdefault(slot.writer, set()).add(slot)
        self.quarantined += 1

    def expire(self, now: float) -> list[Slot]:
        """End, and return, the reservations whose deadline has come."""
        due = self._reserved.due(now)
        for slot in due:
            self.expire_slot(slot)
        return due

    def release_writer(self, writer: Hashable) -> int:
        """Free the quarantined slots of a writer that is proven dead; return how many."""
        slots = self._quarantine.pop(writer, set())
        self.quarantined -= len(slots)
        self._free(*slots)
        return len(slots)
