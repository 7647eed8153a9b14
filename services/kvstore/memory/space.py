"""Allocates space for objects in a tier: free places first, then by eviction."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Generic, TypeVar

from services.kvstore.eviction.base import Entry
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.memory.slab_allocator import SlabAllocator, Span

E = TypeVar("E", bound=Entry)


class SpaceAllocator(Generic[E]):
    """Every place that is not free, by offset, and the tenant charged for it.

    Owned by one tier, on the event loop. Bounded by the slabs.

    Args:
        slabs: places slots; used by this object only.
        policy: chooses what is evicted. Charged bytes here; the tier adds entries to it.
    """

    def __init__(self, slabs: SlabAllocator, policy: EvictionPolicy[E]) -> None:
        self._slabs = slabs
        self._policy = policy
        self.at: dict[int, E] = {}
        self.used_bytes = 0

    def find(self, size: int, tenant: str, evict: Callable[[E], None]) -> int | None:
        """Take one place, as `find_all`; `evict` is called with each entry to be evicted."""

        def evict_all(victims: Sequence[E]) -> None:
            for victim in victims:
                evict(victim)

        return next(iter(self.find_all(1, size, tenant, evict_all)), None)

    def find_all(
        self, count: int, size: int, tenant: str, evict: Callable[[Sequence[E]], None]
    ) -> list[int]:
        """Take places, charged to the tenant, for the caller to `put` entries at.

        Args:
            count: how many; fewer if nothing can be evicted, or the tenant's quota is reached.
            size: as `slot_size` returns.
            tenant: charged for them.
            evict: drops entries and frees their places.
        """
        found: list[int] = []
        while len(found) < count:
            wanted = count - len(found)
            excess = self._policy.excess(tenant, wanted * size)
            if excess > 0:
                victims = self._policy.choose_own(tenant, excess)
                if not victims:  # the quota has space for less
                    count -= min(wanted, -(-excess // size))
                    continue
            else:
                offsets = self._slabs.take(size, wanted)
                if offsets:
                    self._policy.charge(tenant, len(offsets) * size)
                    found += offsets
                    continue
                spans = partial(self._spans, size)
                victims = self._policy.choose(size, tenant, self._beside, spans, wanted)
                if not victims:
                    break
            evict(victims)
        return found

    def shrink(
        self,
        tenant: str,
        most: int,
        evict: Callable[[Sequence[E]], None],
        *,
        whole: bool = False,
    ) -> bool:
        """Evict what a tenant holds beyond its quota; return whether some is left.

        Args:
            tenant: a tenant whose quota may have been lowered.
            most: approximate number of entries to evict; called again for the rest.
            evict: as for `find_all`.
            whole: evict all that it holds.
        """
        while (excess := self._beyond(tenant, whole=whole)) > 0:
            victims = self._policy.choose_own(tenant, excess)[:most]
            if not victims:  # the rest is pinned
                return True
            evict(victims)
            most -= len(victims)
            if most <= 0:
                return self._beyond(tenant, whole=whole) > 0
        return False

    def adopt(self, entry: E, start: int) -> bool:
        """Put an entry at its place from an earlier process; return False if it does not fit."""
        fits = self._slabs.adopt(start, entry.slot_bytes, entry.offset)
        if fits:
            self._policy.charge(entry.tenant, entry.slot_bytes)
            self.put(entry)
        return fits

    def span_start(self, entry: E) -> int:
        """Return where the span of an entry's place begins."""
        return self._slabs.span(entry.offset).start

    def put(self, *entries: E) -> None:
        """Record entries at the places that were taken for them."""
        for entry in entries:
            self.at[entry.offset] = entry
            self.used_bytes += entry.slot_bytes

    def give_back(self, *entries: E) -> None:
        """Free the places of entries, and refund their tenants."""
        for tenant, run in groupby(entries, attrgetter("tenant")):
            size = 0
            for entry in run:
                del self.at[entry.offset]
                size += entry.slot_bytes
            self.used_bytes -= size
            self._policy.refund(tenant, size)
        self._slabs.give_back(*[entry.offset for entry in entries])

    @property
    def free_bytes(self) -> int:
        """Bytes without an entry, in pieces of any size, except those that no slot fits into."""
        return self._slabs.usable_bytes - self.used_bytes - self._slabs.wasted_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes that can be used now: those with allocated memory."""
        return self._slabs.usable_bytes

    def _beyond(self, tenant: str, *, whole: bool) -> int:
        if whole:
            return self._policy.held_bytes.get(tenant, 0)
        return self._policy.excess(tenant, 0)

    def _beside(self, entry: E) -> Sequence[E]:
        return self._entries(self._slabs.span(entry.offset))

    def _spans(self, size: int) -> Iterable[Sequence[E]]:
        return (self._entries(s) for s in self._slabs.next_spans() if s.slot_bytes != size)

    def _entries(self, span: Span) -> Sequence[E]:
        return [self.at[offset] for offset in span.used]
