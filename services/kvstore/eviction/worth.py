"""Recency, frequency and the cost of computing again in one number: Baton's own order.

    rank = now + horizon × log2(uses × cost)

The least goes first. One use more keeps an entry for another part of the horizon, which is learnt:
the typical (geometric mean) distance between two uses of the same object, counted in uses of the
tier. It follows from what is used, and not from the size of the tier: a tier far smaller than the
horizon keeps what was used often (it could not keep what was used last for long enough), and one
far larger is as good as LRU.

A hand-over reads what was just written. Uses that follow the one before by less than a sixteenth of
the horizon are such echoes: they make an entry recent, and count nothing.

Names of what was evicted are remembered with their uses, four times as many as there are entries:
an object that comes back is known, and distances beyond the tier's own size are learnt.
"""

import heapq
import math
from collections import OrderedDict
from itertools import count

from baton.kv.objects import ObjectId
from services.kvstore.eviction.base import Entry, Order

ECHO = 16
LEARN = 1 / 256
GHOSTS = 4
MIN_GHOSTS = 1024
FIRST_HORIZON = 1024.0
MIN_COST = 1 / 16
MAX_COST = 16.0
"""Costs are told by others: one that is absurd must not pin an object for ever."""


class Worth(Order):
    """See the module's text. Every operation is O(log n), amortized."""

    def __init__(self) -> None:
        self._entries: dict[Entry, int] = {}
        """With the number of its place in the heap."""
        self._heap: list[tuple[float, int, Entry]] = []
        self._numbers = count()
        self._out: list[tuple[float, int, Entry]] = []
        """What the heap lacks since `next_ones` answered it; as a rule it is removed next."""
        self._ghosts: OrderedDict[ObjectId, tuple[int, int]] = OrderedDict()
        """`uses` and `counted` of what was evicted, the oldest first."""
        self._log_horizon = math.log(FIRST_HORIZON)
        self.horizon = FIRST_HORIZON
        """Typical distance between two uses of one object."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry, now: int) -> None:
        entry.uses, entry.counted = self._ghosts.pop(entry.object_id, (0, now))
        entry.rank = 0.0
        self.use(entry, now)
        self._push(entry)

    def use(self, entry: Entry, now: int) -> None:
        distance = now - entry.counted
        if not entry.uses:
            entry.uses, entry.counted = 1, now
        elif distance * ECHO >= self.horizon:
            self._log_horizon += LEARN * (math.log(distance) - self._log_horizon)
            self.horizon = math.exp(self._log_horizon)
            entry.uses, entry.counted = entry.uses + 1, now
        cost = min(max(entry.cost, MIN_COST), MAX_COST)
        entry.rank = max(entry.rank, now + self.horizon * math.log2(entry.uses * cost))

    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:  # noqa: ARG002
        del self._entries[entry]
        if evicted:
            self._ghosts[entry.object_id] = (entry.uses, entry.counted)
            while len(self._ghosts) > max(MIN_GHOSTS, GHOSTS * len(self._entries)):
                self._ghosts.popitem(last=False)
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [item for item in self._heap if self._entries.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def first(self, now: int) -> Entry | None:
        return next(iter(self.next_ones(now, 1, math.inf)), None)

    def next_ones(self, now: int, count: int, before: float) -> list[Entry]:
        heap, live = self._heap, self._entries
        for item in self._out:
            if live.get(item[2]) == item[1]:
                heapq.heappush(heap, item)
        self._out = []
        found: list[Entry] = []
        for _ in range(2 * len(heap)):
            if not heap or len(found) == count:
                break
            rank, number, entry = heap[0]
            if live.get(entry) != number:
                heapq.heappop(heap)
                continue
            if entry.pinned:
                self.use(entry, now)
            elif rank == entry.rank:
                if found and rank >= before:
                    break
                self._out.append(heapq.heappop(heap))
                found.append(entry)
                continue
            # Ranks only grow: the heap learns of it when the entry's turn comes.
            heapq.heapreplace(heap, (entry.rank, number, entry))
            if entry.pinned and rank == entry.rank:
                break
        return found or self._scan()

    def _push(self, entry: Entry) -> None:
        number = next(self._numbers)
        self._entries[entry] = number
        heapq.heappush(self._heap, (entry.rank, number, entry))

    def _scan(self) -> list[Entry]:
        """Pinned entries stand before all others, and nothing was used since: a rare walk."""
        free = [entry for entry in self._entries if not entry.pinned]
        return [min(free, key=lambda entry: entry.rank)] if free else []
