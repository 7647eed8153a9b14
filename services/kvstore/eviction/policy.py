"""Who pays for room: tenants over their share first, each in its own order.

Every tenant that holds something has an equal share of the tier, or its quota if that is less. What
others do not use, anybody may; it is taken back when they come. Invariants, held by the tests:

- a request of a tenant that is over its share evicts only entries of tenants over their share;
- a request of a tenant within its share evicts from the tenant furthest over its share;
- a tenant never holds more than its quota.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar, cast

from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.cost_aware import CostAwareOrder
from services.kvstore.eviction.lru import Lru
from services.kvstore.eviction.s3fifo import S3Fifo

ORDERS: dict[str, type[Order]] = {"lru": Lru, "s3-fifo": S3Fifo, "cost-aware": CostAwareOrder}
DEFAULT_ORDER = "cost-aware"
"""The best of them by bench/kv/eviction.py."""

E = TypeVar("E", bound=Entry)

_SIZE_AND_TENANT = attrgetter("slot_bytes", "tenant")


class _Group:
    """Entries of one tenant and size."""

    def __init__(self, order: Order) -> None:
        self.partial = Lru()
        self.full = order
        self.free = 0
        """Entries that are not pinned."""

    def order(self, entry: Entry) -> Order:
        return self.partial if entry.partial else self.full

    def first(self, now: int) -> Entry | None:
        return next(iter(self.next_ones(now, 1)), None)

    def next_ones(self, now: int, count: int, before: float = math.inf) -> Sequence[Entry]:
        """As `Order.next_ones`; none where all are pinned."""
        if not self.free:
            return []
        return (len(self.partial) and self.partial.next_ones(now, count, before)) or (
            self.full.next_ones(now, count, before)
        )


class EvictionPolicy(Generic[E]):
    """See the module's text. Entries are of type E.

    Args:
        capacity_bytes: of the tier.
        order: makes the order of one tenant's entries of one size.
        quotas: most bytes of tenants that may not use all that is free.
    """

    def __init__(
        self,
        capacity_bytes: int,
        order: Callable[[], Order] = ORDERS[DEFAULT_ORDER],
        quotas: Mapping[str, int] | None = None,
    ) -> None:
        self._capacity = capacity_bytes
        self._order = order
        self._quotas = dict(quotas or {})
        self._sizes: dict[int, dict[str, _Group]] = {}
        self._now = 0
        self.held_bytes: dict[str, int] = {}
        """Bytes of each tenant that holds any, whatever their state."""

    # Bytes

    def charge(self, tenant: str, size: int) -> None:
        """A tenant takes bytes."""
        self.held_bytes[tenant] = self.held_bytes.get(tenant, 0) + size

    def refund(self, tenant: str, size: int) -> None:
        """It gives them back."""
        left = self.held_bytes[tenant] - size
        if left:
            self.held_bytes[tenant] = left
        else:
            del self.held_bytes[tenant]

    def excess(self, tenant: str, size: int) -> int:
        """How much more than it may a tenant would hold with so many bytes more; below 0: less."""
        return self.held_bytes.get(tenant, 0) + size - self._quotas.get(tenant, self._capacity)

    def share(self, tenant: str, asking: str | None = None) -> float:
        """Bytes that nobody takes from a tenant, while `asking` is there too."""
        present = tenant if asking is None else asking
        tenants = len(self.held_bytes) + (present not in self.held_bytes)
        return min(self._capacity / max(tenants, 1), self._quotas.get(tenant, self._capacity))

    def shares(self) -> list[tuple[str, int, float]]:
        """Each tenant that holds something: its name, bytes and share."""
        return [(name, held, self.share(name)) for name, held in list(self.held_bytes.items())]

    # Entries

    def evictable(self, entry: Entry) -> bool:
        """Whether it is here and not pinned."""
        return entry.held and not entry.pinned

    def add(self, *entries: E) -> None:
        """They became readable."""
        for (size, tenant), run in groupby(entries, _SIZE_AND_TENANT):
            groups = self._sizes.setdefault(size, {})
            group = groups.get(tenant)
            if group is None:
                group = groups[tenant] = _Group(self._order())
            for entry in run:
                entry.held = True
                group.free += 1
                self._now += 1
                (group.partial if entry.partial else group.full).add(entry, self._now)

    def use(self, entry: E) -> None:
        """Somebody asked for it."""
        self._now += 1
        self._group(entry).order(entry).use(entry, self._now)

    def pin(self, entry: E) -> None:
        """It can not go until `unpin`."""
        entry.pinned = True
        self._group(entry).free -= 1

    def unpin(self, entry: E) -> None:
        entry.pinned = False
        self._group(entry).free += 1

    def remove(self, *entries: E, evicted: bool) -> None:
        """They are gone, `evicted` to make room."""
        for (size, tenant), run in groupby(entries, _SIZE_AND_TENANT):
            group = self._sizes[size][tenant]
            for entry in run:
                order = group.partial if entry.partial else group.full
                order.remove(entry, self._now, evicted=evicted)
                group.free -= not entry.pinned
                entry.held = False

    # Choice

    def choose(
        self,
        size: int,
        asking: str,
        span: Callable[[E], Sequence[E]],
        spans: Callable[[], Iterable[Sequence[E]]],
        count: int = 1,
    ) -> Sequence[E]:
        """Entries whose eviction makes room for one of `size` bytes; empty where nothing does.

        Or for up to `count`, where entries of that size and of the asking tenant go next anyway.

        Args:
            size: bytes of the slot.
            asking: the tenant that wants it.
            span: everything that must go before the place of an entry of another size can be used.
            spans: all such sets of entries of other sizes.
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
        """The tenant's entries to go first, of any size, of `size` bytes or less in all.

        One at least; none where nothing of it can go.
        """
        groups = [groups[tenant] for groups in self._sizes.values() if tenant in groups]
        entries = [e for e in (group.first(self._now) for group in groups) if e is not None]
        entries.sort(key=lambda e: e.rank)
        if not entries:
            return []
        first = cast("E", entries[0])
        before = entries[1].rank if len(entries) > 1 else math.inf
        count = -(-size // first.slot_bytes)
        return cast("Sequence[E]", self._group(first).next_ones(self._now, count, before))

    def coldest(self) -> E | None:
        """What goes next of all, from the tenant furthest over its share."""
        heads = (self._candidate(size, None, 0) for size in self._sizes)
        return min((e for e in heads if e is not None), key=self._turn, default=None)

    # Inside

    def _run(self, first: E, count: int, other: E | None) -> Sequence[E]:
        """What goes next of the group of `first`, until it is the turn of `other`."""
        before = math.inf
        if other is not None and self._turn(other)[:2] == self._turn(first)[:2]:
            before = other.rank
        return cast("Sequence[E]", self._group(first).next_ones(self._now, count, before))

    def _group(self, entry: Entry) -> _Group:
        return self._sizes[entry.slot_bytes][entry.tenant]

    def _over(self, tenant: str, asking: str | None, extra: int) -> float:
        """Bytes that a tenant has beyond its share, with what it asks for."""
        held = self.held_bytes.get(tenant, 0) + (extra if tenant == asking else 0)
        return held - self.share(tenant, asking)

    def _may_pay(self, tenant: str, asking: str | None, extra: int) -> bool:
        return asking in (None, tenant) or self._over(tenant, asking, extra) > 0

    def _candidate(self, size: int, asking: str | None, extra: int) -> E | None:
        """The first entry of one size, of the tenant that is to pay."""
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
        return cast("E | None", groups[payer].first(self._now))

    def _last_resort(
        self, groups: Mapping[str, _Group], asking: str | None, extra: int
    ) -> E | None:
        """Who is within his share may break into that of others where sizes leave no other way."""
        if asking is None or self._over(asking, asking, extra) > 0:
            return None
        entries = [group.first(self._now) for group in groups.values()]
        first = min((e for e in entries if e is not None), key=lambda e: e.rank, default=None)
        return cast("E | None", first)

    def _turn(self, entry: Entry) -> tuple[bool, bool, float]:
        over = self._over(entry.tenant, None, 0) > 0
        return (not over, not entry.partial, entry.rank)

    def _whole(self, entries: Sequence[E], asking: str, extra: int) -> list[E]:
        """A span's entries if all of them may go."""
        within = self._over(asking, asking, extra) <= 0
        may = all(
            self.evictable(e) and (within or self._may_pay(e.tenant, asking, extra))
            for e in entries
        )
        return list(entries) if may else []
