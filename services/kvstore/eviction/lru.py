"""The order of least recent use."""

from collections import OrderedDict

from services.kvstore.eviction.base import Entry, Order


class Lru(Order):
    """Evicts the least recently used entry first. Every operation is O(1)."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Entry, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, now: int) -> None:
        entry.rank = now
        self._entries[entry] = None

    def use(self, entry: Entry, now: int) -> None:
        entry.rank = now
        self._entries.move_to_end(entry)

    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:  # noqa: ARG002
        del self._entries[entry]

    def first(self, now: int) -> Entry | None:
        for _ in range(len(self._entries)):
            entry = next(iter(self._entries))
            if not entry.pinned:
                return entry
            self.use(entry, now)
        return None
