"""Eviction by shares: tenants over their share give up space first, each in its own order.

Every tenant that holds something has an equal share of the tier, or its quota if that is less. Any
tenant may use what others do not; it is reclaimed when they need it. Invariants, held by the tests:

- a request of a tenant that is over its share evicts only entries of tenants over their share;
- a request of a tenant within its share evicts from the tenant furthest over its share;
- a tenant never holds more than its quota, except what was pinned when the quota was lowered.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar, cast

from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.cost_aware import CostAwareOrder
from services.kvstore.eviction.group import EvictionGroup

E = TypeVar("E", bound=Entry)

_SIZE_AND_TENANT = attrgetter("slot_bytes", "tenant")


class EvictionPolicy(Generic[E]):
    """Chooses the entries, of type E, that are evicted from one tier.

    Owned by the tier, on the event loop. No I/O, and no clock except a count of uses. Bounded by
    the tier's entries.

    Args:
        capacity_bytes: of the tier.
        order: makes the order of one tenant's entries of one size.
        quotas: most bytes of tenants with a limit below the free space; may change at any time.
    """

    def __init__(
        self,
        capacity_bytes: int,
        order: Callable[[], Order] = CostAwareOrder,
        quotas: Mapping[str, int] | None = None,
    ) -> None:
        self._capacity = capacity_bytes
        self._order = order
        self._quotas = {} if quotas is None else quotas
        self._sizes: dict[int, dict[str, EvictionGroup]] = {}
        self._now = 0
        self.held_bytes: dict[str, int] = {}
        """Bytes of each tenant that holds any, in any state."""

    def charge(self, tenant: str, size: int) -> None:
        """Charge bytes to a tenant."""
        self.held_bytes[tenant] = self.held_bytes.get(tenant, 0) + size

    def refund(self, tenant: str, size: int) -> None:
        """Refund bytes to a tenant."""
        left = self.held_bytes[tenant] - size
        if left:
            self.held_bytes[tenant] = left
        else:
            del self.held_bytes[tenant]

    def excess(self, tenant: str, size: int) -> int:
        """Return by how much `size` more bytes exceed a tenant's quota; below 0: they do not."""
        return self.held_bytes.get(tenant, 0) + size - self._quotas.get(tenant, self._capacity)

    def share(self, tenant: str, asking: str | None = None) -> float:
        """Return the bytes of a tenant's share, with `asking` counted as present."""
        present = tenant if asking is None else asking
        tenants = len(self.held_bytes) + (present not in self.held_bytes)
        return min(self._capacity / max(tenants, 1), self._quotas.get(tenant, self._capacity))

    def shares(self) -> list[tuple[str, int, float]]:
        """Return name, bytes and share of each tenant that holds something."""
        return [(name, held, self.share(name)) for name, held in list(self.held_bytes.items())]

    def evictable(self, entry: Entry) -> bool:
        """Return whether an entry is held and not pinned."""
        return entry.held and not entry.pinned

    def add(self, *entries: E) -> None:
        """Add entries that became readable."""
        for (size, tenant), run in groupby(entries, _SIZE_AND_TENANT):
            groups = self._sizes.setdefault(size, {})
            group = groups.get(tenant)
            if group is None:
                group = groups[tenant] = EvictionGroup(self._order())
            for entry in run:
                entry.held = True
                group.free += 1
                self._now += 1
                group.order(entry).add(entry, self._now)

    def use(self, entry: E) -> None:
        """Count a use."""
        self._now += 1
        self._group(entry).order(entry).use(entry, self._now)

    def pin(self, entry: E) -> None:
        """Pin an entry until `unpin`."""
        entry.pinned = True
        self._group(entry).free -= 1

    def unpin(self, entry: E) -> None:
        """Make an entry evictable again."""
        entry.pinned = False
        group = self._group(entry)
        group.free += 1
        group.order(entry).unpin(entry)

    def remove(self, *entries: E, evicted: bool) -> None:
        """Remove entries; `evicted`: to free space."""
        for (size, tenant), run in groupby(entries, _SIZE_AND_TENANT):
            group = self._sizes[size][tenant]
            for entry in run:
                group.order(entry).remove(entry, self._now, evicted=evicted)
                group.free -= not entry.pinned
                entry.held = False

    def demote(self, entry: E, *, unneeded: bool) -> None:
        """Have an entry evicted before those that are needed, or no longer so."""
        if entry.unneeded == unneeded or not entry.held:
            return
        group = self._group(entry)
        group.order(entry).remove(entry, self._now, evicted=False)
        entry.unneeded = unneeded
        group.order(entry).add(entry, self._now)

    def choose(
        self,
        size: int,
        asking: str,
        span: Callable[[E], Sequence[E]],
        spans: Callable[[], Iterable[Sequence[E]]],
        count: int = 1,
    ) -> Sequence[E]:
        """Return entries whose eviction frees space for one of `size` bytes; empty: none was found.

        Or for up to `count`, if entries of that size and of the asking tenant are next anyway.

        Args:
            size: bytes of the slot.
            asking: the tenant that needs it.
            span: returns all entries to evict before the place of an entry of another size can be
                used.
            spans: returns some such sets of entries of other sizes, different ones on each call:
                the work for one slot must not grow with the tier.
        """
        same = self._candidate(size, asking, size)
        others = [self._candidate(other, asking, size) for other in self._sizes if other != size]
        other = min((e for e in others if e is not None), key=self._turn, default=None)
        if other is not None and (same is None or self._turn(other) < self._turn(same)):
            whole = self._whole(span(other), asking, size)
            if whole:
                return whole
        if same is not None:
            return self._run(same, count, other) if same.tenant == asking else [same]
        wholes = (self._whole(entries, asking, size) for entries in spans())
        return next((whole for whole in wholes if whole), [])

    def choose_own(self, tenant: str, size: int) -> Sequence[E]:
        """Return the tenant's entries to evict first, of any size, at most `size` bytes in total.

        At least one; empty if none can be evicted.
        """
        groups = [groups[tenant] for groups in self._sizes.values() if tenant in groups]
        entries = [e for e in (group.first() for group in groups) if e is not None]
        entries.sort(key=lambda e: e.rank)
        if not entries:
            return []
        first = cast("E", entries[0])
        before = entries[1].rank if len(entries) > 1 else math.inf
        count = -(-size // first.slot_bytes)
        return cast("Sequence[E]", self._group(first).next_ones(count, before))

    def coldest(self) -> E | None:
        """Return what is evicted next overall, from the tenant furthest over its share."""
        heads = (self._candidate(size, None, 0) for size in self._sizes)
        return min((e for e in heads if e is not None), key=self._turn, default=None)

    def _run(self, first: E, count: int, other: E | None) -> Sequence[E]:
        """Return the next entries in the group of `first`, until it is the turn of `other`."""
        before = math.inf
        if other is not None and self._turn(other)[:2] == self._turn(first)[:2]:
            before = other.rank
        return cast("Sequence[E]", self._group(first).next_ones(count, before))

    def _group(self, entry: Entry) -> EvictionGroup:
        return self._sizes[entry.slot_bytes][entry.tenant]

    def _over(self, tenant: str, asking: str | None, extra: int) -> float:
        """Return the bytes that a tenant has beyond its share, including what it asks for."""
        held = self.held_bytes.get(tenant, 0) + (extra if tenant == asking else 0)
        return held - self.share(tenant, asking)

    def _may_pay(self, tenant: str, asking: str | None, extra: int) -> bool:
        return asking in (None, tenant) or self._over(tenant, asking, extra) > 0

    def _candidate(self, size: int, asking: str | None, extra: int) -> E | None:
        """Return the first entry of one size, of the tenant that has to give up space."""
        groups = self._sizes.get(size, {})
        for tenant in [t for t, g in groups.items() if not len(g.full) and not len(g.partial)]:
            if tenant not in self.held_bytes:
                del groups[tenant]
        payers = [
            tenant
            for tenant, group in groups.items()
            if group.free and self._may_pay(tenant, asking, extra)
        ]
        if not payers:
            return self._last_resort(groups, asking, extra)
        payer = max(payers, key=lambda tenant: self._over(tenant, asking, extra))
        return cast("E | None", groups[payer].first())

    def _last_resort(
        self, groups: Mapping[str, EvictionGroup], asking: str | None, extra: int
    ) -> E | None:
        """Evict from another tenant's share, for one within its own, if sizes require it."""
        if asking is None or self._over(asking, asking, extra) > 0:
            return None
        entries = [group.first() for group in groups.values()]
        first = min((e for e in entries if e is not None), key=lambda e: e.rank, default=None)
        return cast("E | None", first)

    def _turn(self, entry: Entry) -> tuple[bool, bool, float]:
        over = self._over(entry.tenant, None, 0) > 0
        return (not over, not (entry.partial or entry.unneeded), entry.rank)

    def _whole(self, entries: Sequence[E], asking: str, extra: int) -> list[E]:
        """Return a span's entries if all of them may be evicted."""
        within = self._over(asking, asking, extra) <= 0
        may = all(
            self.evictable(e) and (within or self._may_pay(e.tenant, asking, extra))
            for e in entries
        )
        return list(entries) if may else []
