"""Readers' holds on committed slots."""

from collections.abc import Callable

from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.expiry import Deadlines
from services.kvstore.memory.slot import Lease, Slot, SlotState


class Leases:
    """Leases by deadline. A slot with a lease is neither evicted nor given to a writer.

    Owned by ObjectTable, which bounds them by its cap on pinned bytes.

    Args:
        policy: notified which slots are pinned.
        seconds: time for a reader to copy.
        free: frees the place of a slot that was dropped while it was leased.
    """

    def __init__(
        self, policy: EvictionPolicy[Slot], seconds: float, free: Callable[[Slot], None]
    ) -> None:
        self._policy = policy
        self._seconds = seconds
        self._free = free
        self._leases = Deadlines[Lease]()
        self.leased_bytes = 0

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, slot: Slot, now: float) -> Lease:
        """Return a new lease on a committed slot."""
        if not slot.leases:
            self.leased_bytes += slot.slot_bytes
            self._policy.pin(slot)
        slot.leases += 1
        lease = Lease(slot, now + self._seconds)
        self._leases.add(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """Release a lease; one that expired changes nothing."""
        if not lease.live:
            return
        lease.live = False
        self._leases.remove(lease)
        slot = lease.slot
        slot.leases -= 1
        if slot.leases:
            return
        self.leased_bytes -= slot.slot_bytes
        if slot.state is SlotState.PENDING_FREE:
            self._free(slot)
        else:
            self._policy.unpin(slot)

    def expire(self, now: float) -> list[Lease]:
        """Release, and return, the leases whose deadline has come."""
        due = self._leases.due(now)
        for lease in due:
            self.release(lease)
        return due
