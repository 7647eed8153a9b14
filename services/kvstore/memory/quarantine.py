"""Slots whose writers were not heard of in time, and may write still."""

from collections.abc import Hashable

from services.kvstore.memory.slot import Slot, State


class Quarantine:
    """Keeps such slots, by writer. Their places are nobody else's until they come out."""

    def __init__(self) -> None:
        self._slots: dict[Hashable, set[Slot]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, slot: Slot) -> None:
        """Its reservation lapsed."""
        slot.state = State.QUARANTINED
        self._slots.setdefault(slot.writer, set()).add(slot)
        self._count += 1

    def remove(self, slot: Slot) -> None:
        """Its writer says that it writes no more."""
        held = self._slots[slot.writer]
        held.remove(slot)
        self._count -= 1
        if not held:
            del self._slots[slot.writer]

    def release(self, writer: Hashable) -> set[Slot]:
        """The writer is proven dead: takes its slots out."""
        slots = self._slots.pop(writer, set())
        self._count -= len(slots)
        return slots
