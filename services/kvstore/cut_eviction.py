"""Has every tier evict first what no cut needs any more."""

from collections.abc import Callable, Sequence

from baton.kv.objects import ObjectId
from services.kvstore.disk.tier import DiskTier
from services.kvstore.eviction.cut_tracker import ChainLink, CutTracker
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slot import Slot, SlotRefusal


class CutEviction:
    """Follows the tiers' objects of layouts with groups; without such layouts it does nothing.

    An object that is in memory or on disk counts as there. Chains are known from writers, as long
    as this process runs: what an earlier one left on disk is evicted by use alone until a writer
    offers it again. Owned by the store, on its event loop.

    Args:
        disk: returns the disk tier; None: there is none.
    """

    def __init__(self, disk: Callable[[], DiskTier | None]) -> None:
        self.table: ObjectTable | None = None
        """Set by the store. This is a listener of it, and of the disk tier."""
        self._disk = disk
        self.tracker = CutTracker(self._demote, self._promote)
        self._active = False
        """Whether there was an object of a layout with groups."""

    @property
    def unneeded(self) -> int:
        """Return the number of objects that served cuts and serve none now."""
        return len(self.tracker.unneeded)

    def reserved(
        self,
        object_ids: Sequence[ObjectId],
        slots: Sequence[Slot | SlotRefusal],
        links: Sequence[ChainLink],
    ) -> None:
        """Record where the blocks of a reservation are in their chains."""
        self._active = True
        for object_id, slot, link in zip(object_ids, slots, links, strict=False):
            if isinstance(slot, Slot):
                if not slot.partial:
                    slot.link = link
            elif slot is SlotRefusal.PRESENT:
                self.tracker.add(object_id, link)

    def stored(self, slots: Sequence[Slot]) -> None:
        """Record that slots became readable."""
        if not self._active:
            return
        tracker = self.tracker
        for slot in slots:
            if slot.link is not None:
                tracker.add(slot.object_id, slot.link)
            if tracker.unneeded and slot.object_id in tracker.unneeded:
                self._demote(slot.object_id)

    def removed(self, slots: Sequence[Slot]) -> None:
        """Record that slots are about to become unreadable."""
        if not self._active:
            return
        disk = self._disk()
        for slot in slots:
            if disk is None or slot.object_id not in disk.index:
                self.tracker.remove(slot.object_id)

    def stored_on_disk(self, object_id: ObjectId) -> None:
        """Do nothing: where an object of an earlier process is in its chain is not known."""

    def removed_from_disk(self, object_id: ObjectId) -> None:
        """Record that an object is no longer on disk."""
        if self.table is not None and self.table.get(object_id) is None:
            self.tracker.remove(object_id)

    def _demote(self, object_id: ObjectId) -> None:
        self._set(object_id, unneeded=True)

    def _promote(self, object_id: ObjectId) -> None:
        self._set(object_id, unneeded=False)

    def _set(self, object_id: ObjectId, *, unneeded: bool) -> None:
        slot = None if self.table is None else self.table.get(object_id)
        if self.table is not None and slot is not None:
            self.table.policy.demote(slot, unneeded=unneeded)
        disk = self._disk()
        entry = None if disk is None else disk.index.get(object_id)
        if disk is not None and entry is not None:
            disk.index.policy.demote(entry, unneeded=unneeded)
