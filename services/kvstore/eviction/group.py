"""Entries of one tenant and size, in the order in which they are evicted."""

import math
from collections.abc import Sequence

from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.lru import Lru


class EvictionGroup:
    """Partial and unneeded blocks by last use, then the others by `order`. Owned by an
    EvictionPolicy.
    """

    def __init__(self, order: Order) -> None:
        self.partial = Lru()
        """Also of unneeded ones."""
        self.full = order
        self.free = 0
        """Entries that are not pinned."""

    def order(self, entry: Entry) -> Order:
        """Return the order of an entry."""
        return self.partial if entry.partial or entry.unneeded else self.full

    def first(self) -> Entry | None:
        """Return what is evicted next; None if all are pinned."""
        return next(iter(self.next_ones(1)), None)

    def next_ones(self, count: int, before: float = math.inf) -> Sequence[Entry]:
        """Return as `Order.next_ones`; empty if all are pinned."""
        if not self.free:
            return []
        return (len(self.partial) and self.partial.next_ones(count, before)) or (
            self.full.next_ones(count, before)
        )
