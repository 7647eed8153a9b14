"""Wants that wait for objects, and the pace at which they get them. No I/O, no clock.

Waiting holds nothing. What a request gets is leased to it, at commit where it waited, as long as

- the table's cap allows it: a commit gives back as much as its lease takes, so waiting readers of
  fresh objects never need more room than their writers had;
- the request holds less than its window: one slow reader cannot take the room of all others.

What cannot be leased now stays where it is, evictable, and is leased once leases come back.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol

from baton.kv.objects import ObjectId
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slot import Lease, Refusal
from services.kvstore.reads.read_request import Answer, ReadRequest, Source

MAX_UNAVAILABLE = 262_144
"""Keys whose WillNotCome is remembered for reads that come just after it; oldest first out."""


class Seeker(Protocol):
    """Is told what to look for at other stores."""

    def seek(self, request: ReadRequest, object_id: ObjectId) -> None:
        """The request waits for the object and has sources."""

    def forget(self, request: ReadRequest, object_id: ObjectId) -> None:
        """It waits no longer; no error if it was not sought."""


class LowerTier(Protocol):
    """Holds objects that are not in memory."""

    def load(self, object_id: ObjectId) -> bool:
        """Fetch it into memory; False where it is not there."""

    def loading(self, object_id: ObjectId) -> bool:
        """Whether it is on its way into memory."""


class WaitTable:
    """See the module's text.

    Args:
        table: the objects.
        window_bytes: what one request may hold leased at once; one object at least.
        unavailable_seconds: how long a local WillNotCome also answers requests that come after it.
    """

    def __init__(
        self, table: ObjectTable, *, window_bytes: int, unavailable_seconds: float = 3.0
    ) -> None:
        self._table = table
        self._window_bytes = window_bytes
        self._denial_seconds = unavailable_seconds
        self.seeker: Seeker | None = None
        self.lower: LowerTier | None = None
        self._waiting: dict[ObjectId, dict[tuple[ReadRequest, int], None]] = {}
        self._unavailable: dict[ObjectId, float] = {}
        """Objects that a local writer will not write, and until when that is remembered."""
        self._holder: dict[Lease, ReadRequest] = {}
        self._starved: dict[ReadRequest, None] = {}
        """Wants that the cap keeps from leasing, longest first."""
        self._changed: dict[ReadRequest, None] = {}
        """Wants with something to answer."""
        self._reads: set[ReadRequest] = set()
        self._deadlines: list[tuple[float, int, ReadRequest]] = []
        self._order = count()
        self.hits = 0
        self.misses = 0

    # Wants

    def add(self, request: ReadRequest, now: float) -> None:
        """Begin to answer a request."""
        request.open = len(request.object_ids)
        self._reads.add(request)
        self._changed[request] = None
        for index, object_id in enumerate(request.object_ids):
            if self._table.get(object_id) is not None:
                request.ready.append(index)
            else:
                self._wait(request, index, now)
        self._pump(request, now)
        if request.open:
            heapq.heappush(self._deadlines, (request.deadline, next(self._order), request))

    def replace_sources(
        self, request: ReadRequest, sources: Iterable[Source], own_id: str, now: float
    ) -> None:
        """Change where else to look for what has not come."""
        waiting = sorted(request.waiting)
        for index in waiting:
            self._forget(request, request.object_ids[index])
        request.set_sources(sources, own_id)
        for index in waiting:
            self._seek(request, index)
            self._fail_if_unavailable(request, index, now)

    def cancel(self, request: ReadRequest) -> None:
        """Stop answering and give every lease of the request back."""
        for index in list(request.waiting):
            self._stop_waiting(request, index)
        request.ready.clear()
        request.pending = Answer()
        request.open = 0
        self._starved.pop(request, None)
        self._changed.pop(request, None)
        self._end(request)
        for lease in list(request.leases):
            self.release(lease)

    def release(self, lease: Lease, *, bad: bool = False) -> None:
        """Give a lease back, or report its object bad; no error for one that lapsed."""
        if bad:
            self._table.report_bad(lease)
        else:
            self._table.release(lease)
        self._let_go(lease)

    def have_read(self, object_ids: Sequence[ObjectId]) -> int:
        """A reader found these by itself and copied them; answers the bytes of those still here."""
        slots = [self._table.use(object_id) for object_id in object_ids]
        self.hits += len(object_ids)
        return sum(slot.object_bytes for slot in slots if slot is not None)

    # What happens elsewhere

    def committed(self, object_ids: Iterable[ObjectId], now: float) -> None:
        """Objects became readable: whoever waited for them gets them."""
        self.reserving(object_ids)
        for object_id in object_ids if self._waiting else ():
            for request, index in list(self._waiting.get(object_id, ())):
                self._stop_waiting(request, index)
                request.ready.append(index)
                self._pump(request, now)

    def reserving(self, object_ids: Iterable[ObjectId]) -> None:
        """A writer means to write objects: what others said before is void."""
        for object_id in object_ids if self._unavailable else ():
            self._unavailable.pop(object_id, None)

    def mark_unavailable(self, object_ids: Iterable[ObjectId], now: float) -> None:
        """A local writer said WillNotCome."""
        for object_id in object_ids:
            self._unavailable.pop(object_id, None)
            self._unavailable[object_id] = now + self._denial_seconds
            self.fail_if_unavailable(object_id, now)
        while len(self._unavailable) > MAX_UNAVAILABLE:
            del self._unavailable[next(iter(self._unavailable))]

    def mark_unavailable_at(
        self, request: ReadRequest, object_id: ObjectId, source: Source, now: float
    ) -> None:
        """A source said that it does not have an object that the request waits for."""
        for waiter, index in list(self._waiting.get(object_id, ())):
            if waiter is request:
                request.unavailable_at.setdefault(index, set()).add(source)
                self._fail_if_unavailable(request, index, now)

    def wanted(self, object_id: ObjectId) -> bool:
        """Whether somebody waits for it."""
        return object_id in self._waiting

    def not_on_disk(self, object_id: ObjectId, now: float) -> None:
        """The lower tier does not bring it: it must come from elsewhere."""
        for request, index in list(self._waiting.get(object_id, ())):
            self._seek(request, index)
            self._fail_if_unavailable(request, index, now)

    def fail_if_unavailable(self, object_id: ObjectId, now: float) -> None:
        """Something changed about who may write an object: answer those who wait in vain."""
        for request, index in list(self._waiting.get(object_id, ())):
            self._fail_if_unavailable(request, index, now)

    def lease_expired(self, lease: Lease) -> None:
        """The table let a lease lapse."""
        request = self._holder.get(lease)
        if request is not None:
            self._let_go(lease)
            request.reader.lease_expired(request, lease)

    def expire(self, now: float) -> None:
        """Answer requests whose wait is over, and forget old unavailable_at.

        What is here and only waits for room is still leased as room comes.
        """
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, request = heapq.heappop(self._deadlines)
            for index in sorted(request.waiting):
                self._stop_waiting(request, index)
                self._answer_missing(request, index, request.pending.timed_out)
        for object_id, until in list(self._unavailable.items()):
            if until > now:
                break
            del self._unavailable[object_id]

    # Answers

    def flush(self, now: float) -> None:
        """Pass on what became known: at most one answer per request."""
        for request in list(self._starved):
            del self._starved[request]
            self._pump(request, now)
        while self._changed:
            request = next(iter(self._changed))
            del self._changed[request]
            answer, request.pending = request.pending, Answer()
            if not request.open:
                answer.done = True
                self._end(request)
            if answer.ready or answer.will_not_come or answer.timed_out:
                request.reader.answer(request, answer)

    @property
    def waiters(self) -> int:
        """Wants that are not answered in full."""
        return len(self._reads)

    # Inside

    def _wait(self, request: ReadRequest, index: int, now: float) -> None:
        if now >= request.deadline:
            self._answer_missing(request, index, request.pending.timed_out)
            return
        object_id = request.object_ids[index]
        request.waiting.add(index)
        self._waiting.setdefault(object_id, {})[request, index] = None
        if self.lower is not None and self.lower.load(object_id):
            return
        self._seek(request, index)
        self._fail_if_unavailable(request, index, now)

    def _stop_waiting(self, request: ReadRequest, index: int) -> None:
        if index not in request.waiting:
            return
        request.waiting.remove(index)
        request.unavailable_at.pop(index, None)
        object_id = request.object_ids[index]
        waiters = self._waiting[object_id]
        del waiters[request, index]
        if not waiters:
            del self._waiting[object_id]
        self._forget(request, object_id)

    def _seek(self, request: ReadRequest, index: int) -> None:
        if self.seeker is not None and request.sources:
            self.seeker.seek(request, request.object_ids[index])

    def _forget(self, request: ReadRequest, object_id: ObjectId) -> None:
        if self.seeker is not None and request.sources:
            self.seeker.forget(request, object_id)

    def _fail_if_unavailable(self, request: ReadRequest, index: int, now: float) -> None:
        """Answer that an object will not come if nobody is left who might bring it."""
        object_id = request.object_ids[index]
        if index not in request.waiting or not request.is_unavailable(index):
            return
        if self.lower is not None and self.lower.loading(object_id):
            return
        if request.instant:
            self._stop_waiting(request, index)
            self._answer_missing(request, index, request.pending.timed_out)
            return
        if self._table.being_written(object_id):
            return
        if request.local and self._unavailable.get(object_id, now) <= now:
            return
        self._stop_waiting(request, index)
        self._answer_missing(request, index, request.pending.will_not_come)

    def _answer_missing(self, request: ReadRequest, index: int, where: list[int]) -> None:
        where.append(index)
        request.open -= 1
        self.misses += 1
        self._changed[request] = None

    def _pump(self, request: ReadRequest, now: float) -> None:
        """Lease what is ready, as far as window and cap allow."""
        while request.ready and (not request.leases or request.leased_bytes < self._window_bytes):
            index = request.ready[0]
            lease = self._table.lease(request.object_ids[index], now)
            if lease is Refusal.EXHAUSTED:
                self._starved[request] = None
                return
            request.ready.popleft()
            if not isinstance(lease, Lease):  # evicted since
                self._wait(request, index, now)
                continue
            request.leases.add(lease)
            request.leased_bytes += lease.slot.slot_bytes
            self._holder[lease] = request
            request.pending.ready.append((index, lease))
            request.open -= 1
            self.hits += 1
            self._changed[request] = None

    def _end(self, request: ReadRequest) -> None:
        self._reads.discard(request)
        if len(self._deadlines) > 2 * len(self._reads) + 64:
            # Ended requests must not pile up until their deadlines.
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._reads]
            heapq.heapify(self._deadlines)

    def _let_go(self, lease: Lease) -> None:
        request = self._holder.pop(lease, None)
        if request is None:
            return
        request.leases.remove(lease)
        request.leased_bytes -= lease.slot.slot_bytes
        if request.ready:
            # Leased again at the next flush, after those who have starved longer.
            self._starved[request] = None
