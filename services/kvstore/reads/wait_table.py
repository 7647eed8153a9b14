"""Wants that wait for objects, and the pace at which they get them. No I/O, no clock.

Waiting holds nothing. What a want gets is leased to it, at commit where it waited, as long as

- the table's cap allows it: a commit gives back as much as its lease takes, so waiting readers of
  fresh objects never need more room than their writers had;
- the want holds less than its window: one slow reader cannot take the room of all others.

What cannot be leased now stays where it is, evictable, and is leased once leases come back.
"""

import heapq
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol

from baton.kv.objects import ObjectId
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slot import Lease, Refusal
from services.kvstore.reads.read_request import Answer, Source, Want

MAX_DENIALS = 262_144
"""Keys whose WillNotCome is remembered for wants that come just after it; the oldest go first."""


class Seeker(Protocol):
    """Is told what to look for at other stores."""

    def seek(self, want: Want, object_id: ObjectId) -> None:
        """The want waits for the object and has sources."""

    def forget(self, want: Want, object_id: ObjectId) -> None:
        """It waits no longer; no error if it was not sought."""


class LowerTier(Protocol):
    """Holds objects that are not in memory."""

    def bring(self, object_id: ObjectId) -> bool:
        """Fetch it into memory; False where it is not there."""

    def bringing(self, object_id: ObjectId) -> bool:
        """Whether it is on its way into memory."""


class WaitTable:
    """See the module's text.

    Args:
        table: the objects.
        window_bytes: what one want may hold leased at once; one object at least.
        denial_seconds: how long a local WillNotCome also answers wants that come after it.
    """

    def __init__(
        self, table: ObjectTable, *, window_bytes: int, denial_seconds: float = 3.0
    ) -> None:
        self._table = table
        self._window_bytes = window_bytes
        self._denial_seconds = denial_seconds
        self.seeker: Seeker | None = None
        self.lower: LowerTier | None = None
        self._waiting: dict[ObjectId, dict[tuple[Want, int], None]] = {}
        self._denied: dict[ObjectId, float] = {}
        """Objects that a local writer will not write, and until when that is remembered."""
        self._holder: dict[Lease, Want] = {}
        self._starved: dict[Want, None] = {}
        """Wants that the cap keeps from leasing, longest first."""
        self._changed: dict[Want, None] = {}
        """Wants with something to answer."""
        self._wants: set[Want] = set()
        self._deadlines: list[tuple[float, int, Want]] = []
        self._order = count()
        self.hits = 0
        self.misses = 0

    # Wants

    def add(self, want: Want, now: float) -> None:
        """Begin to answer a want."""
        want.open = len(want.object_ids)
        self._wants.add(want)
        self._changed[want] = None
        for index, object_id in enumerate(want.object_ids):
            if self._table.get(object_id) is not None:
                want.ready.append(index)
            else:
                self._wait(want, index, now)
        self._pump(want, now)
        if want.open:
            heapq.heappush(self._deadlines, (want.deadline, next(self._order), want))

    def replace_sources(
        self, want: Want, sources: Iterable[Source], own_id: str, now: float
    ) -> None:
        """Change where else to look for what has not come."""
        waiting = sorted(want.waiting)
        for index in waiting:
            self._forget(want, want.object_ids[index])
        want.set_sources(sources, own_id)
        for index in waiting:
            self._seek(want, index)
            self._judge(want, index, now)

    def cancel(self, want: Want) -> None:
        """Stop answering and give every lease of the want back."""
        for index in list(want.waiting):
            self._stop_waiting(want, index)
        want.ready.clear()
        want.pending = Answer()
        want.open = 0
        self._starved.pop(want, None)
        self._changed.pop(want, None)
        self._end(want)
        for lease in list(want.leases):
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
            for want, index in list(self._waiting.get(object_id, ())):
                self._stop_waiting(want, index)
                want.ready.append(index)
                self._pump(want, now)

    def reserving(self, object_ids: Iterable[ObjectId]) -> None:
        """A writer means to write objects: what others said before is void."""
        for object_id in object_ids if self._denied else ():
            self._denied.pop(object_id, None)

    def deny(self, object_ids: Iterable[ObjectId], now: float) -> None:
        """A local writer said WillNotCome."""
        for object_id in object_ids:
            self._denied.pop(object_id, None)
            self._denied[object_id] = now + self._denial_seconds
            self.judge(object_id, now)
        while len(self._denied) > MAX_DENIALS:
            del self._denied[next(iter(self._denied))]

    def deny_from(self, want: Want, object_id: ObjectId, source: Source, now: float) -> None:
        """A source said that it does not have an object that the want waits for."""
        for waiter, index in list(self._waiting.get(object_id, ())):
            if waiter is want:
                want.denials.setdefault(index, set()).add(source)
                self._judge(want, index, now)

    def wanted(self, object_id: ObjectId) -> bool:
        """Whether somebody waits for it."""
        return object_id in self._waiting

    def not_below(self, object_id: ObjectId, now: float) -> None:
        """The lower tier does not bring it: it must come from elsewhere."""
        for want, index in list(self._waiting.get(object_id, ())):
            self._seek(want, index)
            self._judge(want, index, now)

    def judge(self, object_id: ObjectId, now: float) -> None:
        """Something changed about who may write an object: answer those who wait in vain."""
        for want, index in list(self._waiting.get(object_id, ())):
            self._judge(want, index, now)

    def lapsed(self, lease: Lease) -> None:
        """The table let a lease lapse."""
        want = self._holder.get(lease)
        if want is not None:
            self._let_go(lease)
            want.asker.lapsed(want, lease)

    def expire(self, now: float) -> None:
        """Answer wants whose wait is over, and forget old denials.

        What is here and only waits for room is still leased as room comes.
        """
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, want = heapq.heappop(self._deadlines)
            for index in sorted(want.waiting):
                self._stop_waiting(want, index)
                self._answer_missing(want, index, want.pending.timed_out)
        for object_id, until in list(self._denied.items()):
            if until > now:
                break
            del self._denied[object_id]

    # Answers

    def flush(self, now: float) -> None:
        """Pass on what became known: at most one answer per want."""
        for want in list(self._starved):
            del self._starved[want]
            self._pump(want, now)
        while self._changed:
            want = next(iter(self._changed))
            del self._changed[want]
            answer, want.pending = want.pending, Answer()
            if not want.open:
                answer.done = True
                self._end(want)
            if answer.ready or answer.will_not_come or answer.timed_out:
                want.asker.answer(want, answer)

    @property
    def waiters(self) -> int:
        """Wants that are not answered in full."""
        return len(self._wants)

    # Inside

    def _wait(self, want: Want, index: int, now: float) -> None:
        if now >= want.deadline:
            self._answer_missing(want, index, want.pending.timed_out)
            return
        object_id = want.object_ids[index]
        want.waiting.add(index)
        self._waiting.setdefault(object_id, {})[want, index] = None
        if self.lower is not None and self.lower.bring(object_id):
            return
        self._seek(want, index)
        self._judge(want, index, now)

    def _stop_waiting(self, want: Want, index: int) -> None:
        if index not in want.waiting:
            return
        want.waiting.remove(index)
        want.denials.pop(index, None)
        object_id = want.object_ids[index]
        waiters = self._waiting[object_id]
        del waiters[want, index]
        if not waiters:
            del self._waiting[object_id]
        self._forget(want, object_id)

    def _seek(self, want: Want, index: int) -> None:
        if self.seeker is not None and want.sources:
            self.seeker.seek(want, want.object_ids[index])

    def _forget(self, want: Want, object_id: ObjectId) -> None:
        if self.seeker is not None and want.sources:
            self.seeker.forget(want, object_id)

    def _judge(self, want: Want, index: int, now: float) -> None:
        """Answer that an object will not come if nobody is left who might bring it."""
        object_id = want.object_ids[index]
        if index not in want.waiting or not want.denied_by_all_sources(index):
            return
        if self.lower is not None and self.lower.bringing(object_id):
            return
        if want.instant:
            self._stop_waiting(want, index)
            self._answer_missing(want, index, want.pending.timed_out)
            return
        if self._table.being_written(object_id):
            return
        if want.local and self._denied.get(object_id, now) <= now:
            return
        self._stop_waiting(want, index)
        self._answer_missing(want, index, want.pending.will_not_come)

    def _answer_missing(self, want: Want, index: int, where: list[int]) -> None:
        where.append(index)
        want.open -= 1
        self.misses += 1
        self._changed[want] = None

    def _pump(self, want: Want, now: float) -> None:
        """Lease what is ready, as far as window and cap allow."""
        while want.ready and (not want.leases or want.leased_bytes < self._window_bytes):
            index = want.ready[0]
            lease = self._table.lease(want.object_ids[index], now)
            if lease is Refusal.EXHAUSTED:
                self._starved[want] = None
                return
            want.ready.popleft()
            if not isinstance(lease, Lease):  # evicted since
                self._wait(want, index, now)
                continue
            want.leases.add(lease)
            want.leased_bytes += lease.slot.slot_bytes
            self._holder[lease] = want
            want.pending.ready.append((index, lease))
            want.open -= 1
            self.hits += 1
            self._changed[want] = None

    def _end(self, want: Want) -> None:
        self._wants.discard(want)
        if len(self._deadlines) > 2 * len(self._wants) + 64:
            # Ended wants must not pile up until their deadlines.
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._wants]
            heapq.heapify(self._deadlines)

    def _let_go(self, lease: Lease) -> None:
        want = self._holder.pop(lease, None)
        if want is None:
            return
        want.leases.remove(lease)
        want.leased_bytes -= lease.slot.slot_bytes
        if want.ready:
            # Leased again at the next flush, after those who have starved longer.
            self._starved[want] = None
