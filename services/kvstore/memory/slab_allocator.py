"""Placement of slots in the arena.

The data is divided into slabs. A span of one or more adjacent slabs is carved into slots of one
size; when its last slot is freed the slabs are free again for any size. Objects of one layout have
one size, so a span has no holes; layouts of different sizes share the data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from baton.kv.arena.file import PAGE_BYTES

MAX_WASTE = 8
"""A span loses at most one part in this many at its end, if possible."""
MAX_LOOKS = 16
"""Most slabs that one call of `next_spans` visits."""


@dataclass(eq=False, slots=True)
class Span:
    """Adjacent slabs carved into slots of one size."""

    first_slab: int
    slabs: int
    start: int
    slot_bytes: int
    free: list[int]
    """Offsets of free slots; the last is taken next."""
    used: set[int] = field(default_factory=set)


class SlabAllocator:
    """Places slots in `total_bytes` of data; offsets count from the beginning of the data.

    Owned by one tier's SpaceAllocator. Pure bookkeeping: it does not access the memory.

    Args:
        total_bytes: size of the data, a multiple of slab_bytes.
        slab_bytes: size of a slab, a multiple of the page.
        usable_bytes: how much of the data may be used until `grow` is called.
        on_carve: called with (offset, bytes) when a range gets new slots.
    """

    def __init__(
        self,
        total_bytes: int,
        slab_bytes: int,
        usable_bytes: int | None = None,
        on_carve: Callable[[int, int], None] = lambda _offset, _size: None,
    ) -> None:
        if slab_bytes % PAGE_BYTES or total_bytes % slab_bytes or total_bytes <= 0:
            raise ValueError(
                f"{total_bytes} bytes are not a multiple of the slab size {slab_bytes}"
            )
        self.slab_bytes = slab_bytes
        self.total_bytes = total_bytes
        self._on_carve = on_carve
        self._taken = bytearray(b"\1" * (total_bytes // slab_bytes))
        self._usable_slabs = 0
        self._span_of: dict[int, Span] = {}
        self._open: dict[int, dict[Span, None]] = {}
        """Spans with a free slot, by size of slot."""
        self._looked = 0
        """The slab that `next_spans` begins at."""
        self.wasted_bytes = 0
        """Bytes at the ends of spans that no slot fits into."""
        self.grow(total_bytes if usable_bytes is None else usable_bytes)

    @property
    def usable_bytes(self) -> int:
        return self._usable_slabs * self.slab_bytes

    def grow(self, usable_bytes: int) -> None:
        """Allow slots in the first `usable_bytes` of the data; a lower value changes nothing."""
        slabs = min(usable_bytes, self.total_bytes) // self.slab_bytes
        for slab in range(self._usable_slabs, slabs):
            self._taken[slab] = 0
        self._usable_slabs = max(self._usable_slabs, slabs)

    def take(self, slot_bytes: int, count: int) -> list[int]:
        """Take at most `count` free slots of a `slot_size`; return their offsets."""
        offsets: list[int] = []
        while len(offsets) < count:
            spans = self._open.get(slot_bytes)
            span = next(iter(spans)) if spans else self._carve(slot_bytes)
            if span is None:
                break
            taken = span.free[len(offsets) - count :]
            del span.free[len(offsets) - count :]
            span.used.update(taken)
            offsets.extend(reversed(taken))
            if not span.free:
                self._close(span)
        return offsets

    def adopt(self, start: int, slot_bytes: int, offset: int) -> bool:
        """Take a slot placed by an earlier allocator; return False if it does not fit.

        Args:
            start: of its span.
            slot_bytes: its size.
            offset: where it begins.
        """
        span = self._span_of.get(start // self.slab_bytes)
        if span is None:
            slabs = self._slabs_for(slot_bytes)
            first = start // self.slab_bytes
            room = self._taken[first : first + slabs]
            if start % self.slab_bytes or len(room) < slabs or any(room):
                return False
            span = self._make(first, slabs, slot_bytes)
            if offset not in span.free:
                self._release(span)
                return False
        if (span.start, span.slot_bytes) != (start, slot_bytes) or offset not in span.free:
            return False
        span.free.remove(offset)
        span.used.add(offset)
        if not span.free:
            self._close(span)
        return True

    def give_back(self, *offsets: int) -> None:
        """Free slots.

        Raises:
            KeyError: no slot in use begins there.
        """
        for offset in offsets:
            span = self._span_of[offset // self.slab_bytes]
            span.used.remove(offset)
            span.free.append(offset)
            if not span.used:
                self._release(span)
            elif len(span.free) == 1:
                self._open.setdefault(span.slot_bytes, {})[span] = None

    def span(self, offset: int) -> Span:
        """Return the span that contains a slot.

        Raises:
            KeyError: no slot begins there.
        """
        return self._span_of[offset // self.slab_bytes]

    def spans(self) -> Iterator[Span]:
        """Yield every span once."""
        return (span for slab, span in self._span_of.items() if slab == span.first_slab)

    def next_spans(self) -> Iterator[Span]:
        """Yield a few spans: each call continues where the last one stopped, and wraps around."""
        slabs = len(self._taken)
        for _ in range(min(MAX_LOOKS, slabs)):
            slab, self._looked = self._looked, (self._looked + 1) % slabs
            span = self._span_of.get(slab)
            if span is not None and span.first_slab == slab:
                yield span

    def _carve(self, slot_bytes: int) -> Span | None:
        slabs = self._slabs_for(slot_bytes)
        first = self._taken.find(b"\0" * slabs)
        if first < 0:
            return None
        return self._make(first, slabs, slot_bytes)

    def _make(self, first: int, slabs: int, slot_bytes: int) -> Span:
        start = first * self.slab_bytes
        count = slabs * self.slab_bytes // slot_bytes
        free = [start + index * slot_bytes for index in reversed(range(count))]
        span = Span(first, slabs, start, slot_bytes, free)
        self.wasted_bytes += self._waste(span)
        for slab in range(first, first + slabs):
            self._taken[slab] = 1
            self._span_of[slab] = span
        self._open.setdefault(slot_bytes, {})[span] = None
        self._on_carve(start, slabs * self.slab_bytes)
        return span

    def _release(self, span: Span) -> None:
        """Free the slabs of an empty span for any size."""
        spans = self._open.get(span.slot_bytes)
        if spans is not None and span in spans:
            self._close(span)
        self.wasted_bytes -= self._waste(span)
        for slab in range(span.first_slab, span.first_slab + span.slabs):
            self._taken[slab] = 0
            del self._span_of[slab]

    def _waste(self, span: Span) -> int:
        return span.slabs * self.slab_bytes % span.slot_bytes

    def _slabs_for(self, slot_bytes: int) -> int:
        """Return the length of the shortest span that wastes little, or holds one slot."""
        shortest = -(-slot_bytes // self.slab_bytes)
        for slabs in range(shortest, min(shortest + MAX_WASTE, len(self._taken) // 4) + 1):
            size = slabs * self.slab_bytes
            if (size % slot_bytes) * MAX_WASTE <= size:
                return slabs
        return shortest

    def _close(self, span: Span) -> None:
        spans = self._open[span.slot_bytes]
        spans.pop(span, None)
        if not spans:
            del self._open[span.slot_bytes]


def slot_size(object_bytes: int) -> int:
    """Return the bytes that an object occupies in the arena: whole pages."""
    return -(-object_bytes // PAGE_BYTES) * PAGE_BYTES
