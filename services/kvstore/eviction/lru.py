"""The order of least recent use."""

from collections import OrderedDict

from services.kvstore.eviction.base import Entry, Order


class Lru(Order):
    """Evicts the least recently used entry first. Every operation is O(1), amortized."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Entry, None] = OrderedDict()
        self._pinned: set[Entry] = set()
        """Entries removed from the order until they are unpinned."""

    def __len__(self) -> int:
        return len(self._entries) + len(self._pinned)

    def add(self, entry: Entry, now: int) -> None:
        entry.rank = now
        self._entries[entry] = None

    def use(self, entry: Entry, now: int) -> None:
        entry.rank = now
        if entry not in self._pinned:
            self._entries.move_to_end(entry)

    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:  # noqa: ARG002
        if entry in self._pinned:
            self._pinned.remove(entry)
        else:
            del self._entries[entry]

    def unpin(self, entry: Entry) -> None:
        if entry in self._pinned:
            self._pinned.remove(entry)
            self._entries[entry] = None
            self._entries.move_to_end(entry, last=False)

    def first(self) -> Entry | None:
        while self._entries:
            entry = next(iter(self._entries))
            if not entry.pinned:
                return entry
            del self._entries[entry]
            self._pinned.add(entry)
        return None
