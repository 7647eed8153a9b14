"""Room for objects in a tier: free places first, then those of what the policy lets go."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from services.kvstore.eviction.base import Entry
from services.kvstore.eviction.policy import EvictionPolicy
from services.kvstore.slabs import SlabAllocator, Span

E = TypeVar("E", bound=Entry)


class Places(Generic[E]):
    """Every place that is not free, by offset, and who is charged for it.

    Args:
        slabs: where places are; this is its only user.
        policy: what may go; told of bytes here, of entries by whoever owns them.
    """

    def __init__(self, slabs: SlabAllocator, policy: EvictionPolicy[E]) -> None:
        self._slabs = slabs
        self._policy = policy
        self.at: dict[int, E] = {}
        self.used_bytes = 0

    def find(self, size: int, tenant: str, evict: Callable[[E], None]) -> int | None:
        """A place, taken; None where nothing can make room, or the tenant's quota is full.

        Args:
            size: as `slot_size` answers.
            tenant: who is charged once something is `put` there.
            evict: drops one entry and gives its place back.
        """
        while self._policy.exceeds_quota(tenant, size):
            own = self._policy.choose_own(tenant)
            if own is None:
                return None
            evict(own)
        offset = self._slabs.take(size)
        while offset is None:
            victims = self._policy.choose(size, tenant, self._beside, lambda: self._spans(size))
            if not victims:
                return None
            for victim in victims:
                evict(victim)
            offset = self._slabs.take(size)
        return offset

    def adopt(self, entry: E, start: int) -> bool:
        """`put` an entry where an earlier process had placed it; False where it fits no more."""
        fits = self._slabs.adopt(start, entry.slot_bytes, entry.offset)
        if fits:
            self.put(entry)
        return fits

    def span_start(self, entry: E) -> int:
        """Where the span of an entry's place begins."""
        return self._slabs.span(entry.offset).start

    def put(self, entry: E) -> None:
        """Something lies at a place that `find` answered."""
        self.at[entry.offset] = entry
        self.used_bytes += entry.slot_bytes
        self._policy.charge(entry.tenant, entry.slot_bytes)

    def give_back(self, entry: E) -> None:
        """It lies there no longer."""
        del self.at[entry.offset]
        self._slabs.give_back(entry.offset)
        self.used_bytes -= entry.slot_bytes
        self._policy.refund(entry.tenant, entry.slot_bytes)

    @property
    def free_bytes(self) -> int:
        """Bytes that nothing lies in, in whatever pieces."""
        return self._slabs.usable_bytes - self.used_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes that have memory behind them, and so can be used now."""
        return self._slabs.usable_bytes

    def _beside(self, entry: E) -> Sequence[E]:
        return self._entries(self._slabs.span(entry.offset))

    def _spans(self, size: int) -> Iterable[Sequence[E]]:
        return (self._entries(s) for s in self._slabs.spans() if s.slot_bytes != size)

    def _entries(self, span: Span) -> Sequence[E]:
        return [self.at[offset] for offset in span.used]
