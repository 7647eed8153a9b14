"""The order by recency, frequency and cost of recomputing, in one number.

    rank = now + horizon × log2(uses × cost)

Lowest first. One more use keeps an entry for another part of the horizon, which is learned: the
typical (geometric mean) distance between two uses of the same object, counted in uses of the tier.
It depends on what is used, and not on the size of the tier: a tier far smaller than the horizon
keeps what was used often (it could not keep what was used last for long enough), and one far larger
is as good as LRU.

A hand-over from prefill to decode reads what was just written. Uses that follow the previous one by
less than a sixteenth of the horizon are such echoes: they make an entry recent, but do not count.

Entries that arrive in the order of rank, as new objects do, wait in a queue, others in a heap:
removing the next of tens of thousands from a heap touches much uncached memory. An entry that is
pinned when its turn comes leaves both until it is unpinned, at its existing rank: being read or
written is not a use, and a pinned head must not be visited every time.

Names of what was evicted are remembered with their uses, four times as many as there are entries:
an object that comes back is known, and distances beyond the tier's own size are learnt. Exactly the
last so many: with a table of fixed places that names take from each other, 3,000 blocks hit 8.7 %
of a trace instead of 12.4 %.
"""

import heapq
import math
from collections import OrderedDict, deque
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
"""Costs come from writers: an absurd one must not keep an object forever."""


Item = tuple[float, int, Entry]
"""The rank of an entry when it was queued, the number of its place, and the entry."""


class CostAwareOrder(Order):
    """Evicts the lowest rank first: recency, frequency and cost. O(log n) per operation, amortized.

    Bounded by the entries, and four times as many names of evicted ones.
    """

    def __init__(self) -> None:
        self._count = 0
        self._queue: deque[Item] = deque()
        self._heap: list[Item] = []
        self._numbers = count(1)
        self._out: list[Item] = []
        """Returned by `next_ones`, and not queued since; usually removed next."""
        self._ghosts: OrderedDict[ObjectId, tuple[int, int]] = OrderedDict()
        """`uses` and `counted` of evicted objects, the oldest first."""
        self._log_horizon = math.log(FIRST_HORIZON)
        self.horizon = FIRST_HORIZON
        """Typical distance between two uses of one object."""

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry, now: int) -> None:
        entry.uses, entry.counted = self._ghosts.pop(entry.object_id, (0, now))
        entry.rank = 0.0
        self.use(entry, now)
        self._count += 1
        self._place(entry)

    def use(self, entry: Entry, now: int) -> None:
        distance = now - entry.counted
        if not entry.uses:
            entry.uses, entry.counted = 1, now
        elif distance * ECHO >= self.horizon:
            self._log_horizon += LEARN * (math.log(distance) - self._log_horizon)
            self.horizon = math.exp(self._log_horizon)
            entry.uses, entry.counted = entry.uses + 1, now
        cost = entry.cost
        if not MIN_COST <= cost <= MAX_COST:
            cost = MIN_COST if cost < MIN_COST else MAX_COST
        rank = now + self.horizon * math.log2(entry.uses * cost)
        if rank > entry.rank:
            entry.rank = rank

    def remove(self, entry: Entry, now: int, *, evicted: bool) -> None:  # noqa: ARG002
        entry.place = 0
        self._count -= 1
        if evicted:
            self._ghosts[entry.object_id] = (entry.uses, entry.counted)
            while len(self._ghosts) > max(MIN_GHOSTS, GHOSTS * self._count):
                self._ghosts.popitem(last=False)
        if len(self._heap) + len(self._queue) > 2 * self._count + 64:
            self._queue = deque(filter(_is_live, self._queue))
            self._heap = list(filter(_is_live, self._heap))
            heapq.heapify(self._heap)

    def unpin(self, entry: Entry) -> None:
        if not entry.place:
            self._place(entry)

    def first(self) -> Entry | None:
        return next(iter(self.next_ones(1, math.inf)), None)

    def next_ones(self, count: int, before: float) -> list[Entry]:
        queue, heap = self._queue, self._heap
        for item in filter(_is_live, self._out):
            heapq.heappush(heap, item)
        out = self._out = []
        found: list[Entry] = []
        while len(found) < count and (heap or queue):
            queued = bool(queue) and (not heap or queue[0] < heap[0])
            item = queue.popleft() if queued else heapq.heappop(heap)
            rank, number, entry = item
            if entry.place != number:
                continue
            if entry.pinned:
                entry.place = 0
            elif entry.rank > rank:
                # Ranks only grow, which is detected when the entry's turn comes.
                self._push((entry.rank, number, entry))
            elif found and rank >= before:
                heapq.heappush(heap, item)
                break
            else:
                out.append(item)
                found.append(entry)
        return found

    def _place(self, entry: Entry) -> None:
        entry.place = number = next(self._numbers)
        self._push((entry.rank, number, entry))

    def _push(self, item: Item) -> None:
        if not self._queue or item >= self._queue[-1]:
            self._queue.append(item)
        else:
            heapq.heappush(self._heap, item)


def _is_live(item: Item) -> bool:
    return item[2].place == item[1]
