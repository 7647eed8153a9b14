"""S3-FIFO: a small queue for what is new, a main one for what came back, names of what went.

Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.
"""

from collections import OrderedDict

from baton.kv.objects import ObjectId
from services.kvstore.eviction.base import Entry, Order

SMALL_PART = 10
"""The small queue is one part in this many."""
MAX_USES = 3


class S3Fifo(Order):
    """See the module's text. Uses are counted up to 3; ghosts are as many as the main queue."""

    def __init__(self) -> None:
        self._small: OrderedDict[Entry, None] = OrderedDict()
        self._main: OrderedDict[Entry, None] = OrderedDict()
        self._ghosts: OrderedDict[ObjectId, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def add(self, entry: Entry, now: int) -> None:
        entry.uses, entry.rank = 0, now
        entry.in_main = entry.object_id in self._ghosts
        if entry.in_main:
            del self._ghosts[entry.object_id]
            self._main[entry] = None
        else:
            self._small[entry] = None

    def use(self, entry: Entry, now: int) -> None:
        entry.uses = min(MAX_USES, entry.uses + 1)
        entry.rank = now

    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:  # noqa: ARG002
        if entry.in_main:
            del self._main[entry]
            return
        del self._small[entry]
        if evicted:
            self._ghosts[entry.object_id] = None
            while len(self._ghosts) > max(len(self), 1):
                self._ghosts.popitem(last=False)

    def first(self, now: int) -> Entry | None:
        pinned = 0
        # Each step takes a use from an entry, or passes by a pinned one.
        while pinned <= len(self):
            small = len(self._small) * SMALL_PART >= len(self) or not self._main
            queue = self._small if small else self._main
            entry = next(iter(queue), None)
            if entry is None:
                return None
            if not entry.pinned and not entry.uses:
                return entry
            pinned += entry.pinned
            del queue[entry]
            self._main[entry] = None
            entry.uses = entry.uses - 1 if entry.in_main and entry.uses else 0
            entry.in_main, entry.rank = True, now
        # The main queue may be pinned as a whole while it is not the small one's turn.
        return next((e for q in (self._small, self._main) for e in q if not e.pinned), None)
