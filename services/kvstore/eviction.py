"""What is evicted to make room for a slot. No I/O, no clock."""

from collections.abc import Mapping

from services.kvstore.recency import Recency
from services.kvstore.slabs import SlabAllocator
from services.kvstore.slots import Slot


def choose_victims(
    size: int, slabs: SlabAllocator, recency: Recency, at: Mapping[int, Slot]
) -> list[Slot]:
    """Slots whose eviction may make room for one of `size` bytes; empty where nothing does.

    Partial blocks go first, then the least recently used. An object of another size helps only
    together with all others in its span.

    Args:
        size: as `slot_size` answers.
        slabs: where slots are.
        recency: which of them can be evicted.
        at: every slot that is not free, by its offset.
    """

    def whole_span(offset: int) -> list[Slot]:
        slots = [at[used] for used in slabs.span(offset).used]
        return slots if all(slot in recency for slot in slots) else []

    own = recency.oldest_partial(size)
    if own is not None:
        return [own]
    own, other = recency.oldest(size), recency.oldest_other(size)
    if other is not None and (own is None or other.used < own.used):
        span = whole_span(other.offset)
        if span:
            return span
    if own is not None:
        return [own]
    # Nothing of this size: whichever span of another size can be emptied.
    others = (whole_span(span.start) for span in slabs.spans() if span.slot_bytes != size)
    return next((slots for slots in others if slots), [])
