"""Who is evicted next."""

from collections import OrderedDict

from services.kvstore.slots import Slot


class Recency:
    """Evictable slots (committed, not leased) by size, least recently used first."""

    def __init__(self) -> None:
        self._full: dict[int, OrderedDict[Slot, None]] = {}
        self._partial: dict[int, OrderedDict[Slot, None]] = {}
        self._uses = 0

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._of(slot).get(slot.slot_bytes, ())

    def touch(self, slot: Slot) -> None:
        """The slot was used just now; it is or becomes evictable."""
        self._uses += 1
        slot.used = self._uses
        order = self._of(slot).setdefault(slot.slot_bytes, OrderedDict())
        order[slot] = None
        order.move_to_end(slot)

    def remove(self, slot: Slot) -> None:
        """The slot is leased or gone; no error if it was not evictable."""
        sizes = self._of(slot)
        order = sizes.get(slot.slot_bytes)
        if order is not None and slot in order:
            del order[slot]
            if not order:
                del sizes[slot.slot_bytes]

    def oldest_partial(self, slot_bytes: int) -> Slot | None:
        """The partial block of that size to evict first."""
        return _first(self._partial.get(slot_bytes))

    def oldest(self, slot_bytes: int) -> Slot | None:
        """The full block of that size to evict first."""
        return _first(self._full.get(slot_bytes))

    def oldest_other(self, slot_bytes: int) -> Slot | None:
        """The block to evict first among those of all other sizes."""
        heads = [
            next(iter(order))
            for sizes in (self._partial, self._full)
            for size, order in sizes.items()
            if size != slot_bytes
        ]
        return min(heads, key=lambda slot: slot.used, default=None)

    def _of(self, slot: Slot) -> dict[int, OrderedDict[Slot, None]]:
        return self._partial if slot.partial else self._full


def _first(order: OrderedDict[Slot, None] | None) -> Slot | None:
    return next(iter(order)) if order else None
