"""Read requests that wait for objects, and the rate at which they get leases."""

from collections.abc import Callable, Iterable, Sequence

from baton.kv.objects import ObjectId
from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slot import Lease
from services.kvstore.reads.lease_window import LeaseWindow
from services.kvstore.reads.providers import DiskLoader, PeerFetcher
from services.kvstore.reads.read_request import ReadRequest, ReadResult, ReadSource
from services.kvstore.reads.timeouts import Timeouts
from services.kvstore.reads.unavailable import Unavailable


class WaitTable:
    """Grants each read request leases on its objects, as they become readable.

    Owned by the store, on its event loop. No I/O and no clock. Waiting holds nothing. An object is
    leased to a request, on commit if the request waited, as long as the table's cap and the
    request's window allow it: a commit frees as much as its lease takes, so waiting readers of
    fresh objects never need more capacity than their writers had. What cannot be leased stays in
    place, evictable, and is leased once other leases are released.

    Args:
        table: the objects.
        window_bytes: most bytes that one request may hold leased; at least one object.
        unavailable_seconds: how long a local WillNotCome applies to later requests.
        on_change: called after a change; the caller then calls `flush`.
    """

    def __init__(
        self,
        table: ObjectTable,
        *,
        window_bytes: int,
        unavailable_seconds: float = 3.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._table = table
        self._on_change = on_change
        self.peers: PeerFetcher | None = None
        self.disk: DiskLoader | None = None
        self._waiting: dict[ObjectId, dict[tuple[ReadRequest, int], None]] = {}
        self._leases = LeaseWindow(table, window_bytes)
        self._unavailable = Unavailable(unavailable_seconds)
        self._changed: dict[ReadRequest, None] = {}
        """Requests with a result to deliver."""
        self._timeouts = Timeouts()
        self.hits = 0
        self.misses = 0

    @property
    def waiters(self) -> int:
        """Number of requests that are not fully answered."""
        return len(self._timeouts)

    def add(self, request: ReadRequest, now: float) -> None:
        """Begin to answer a request."""
        request.unreported = len(request.object_ids)
        self._timeouts.add(request)
        self._changed[request] = None
        for index, object_id in enumerate(request.object_ids):
            if self._table.get(object_id) is not None:
                request.ready.append(index)
            else:
                self._wait(request, index, now)
        self._lease_ready(request, now)
        self._on_change()

    def replace_sources(
        self, request: ReadRequest, sources: Iterable[ReadSource], own_id: str, now: float
    ) -> None:
        """Replace the sources for what is still missing."""
        for index in request.waiting:
            self._cancel_fetch(request, request.object_ids[index])
        request.set_sources(sources, own_id)
        for index in sorted(request.waiting):
            self._fetch(request, index)
            self._fail_if_unavailable(request, index, now)
        self._on_change()

    def cancel(self, request: ReadRequest) -> None:
        """Stop answering, and release every lease of the request."""
        for index in list(request.waiting):
            self._stop_waiting(request, index)
        request.ready.clear()
        request.result = ReadResult()
        request.unreported = 0
        self._leases.forget(request)
        self._changed.pop(request, None)
        self._timeouts.discard(request)
        for lease in list(request.leases):
            self.release(lease)
        self._on_change()

    def release(self, lease: Lease, *, bad: bool = False) -> None:
        """Release a lease, or report its object bad; one that expired changes nothing."""
        if bad:
            self._table.report_bad(lease)
        else:
            self._table.release(lease)
        self._leases.release(lease)
        self._on_change()

    def count_reads(self, object_ids: Sequence[ObjectId]) -> int:
        """Count uses of objects that a reader copied without a lease; return their bytes."""
        slots = [self._table.use(object_id) for object_id in object_ids]
        self.hits += len(object_ids)
        return sum(slot.object_bytes for slot in slots if slot is not None)

    def committed(self, object_ids: Iterable[ObjectId], now: float) -> None:
        """Lease objects that became readable to the requests that wait for them."""
        self._unavailable.discard(object_ids)
        for object_id in object_ids if self._waiting else ():
            for request, index in list(self._waiting.get(object_id, ())):
                self._stop_waiting(request, index)
                request.ready.append(index)
                self._lease_ready(request, now)
        self._on_change()

    def reserved(self, object_ids: Iterable[ObjectId]) -> None:
        """Record that a writer is about to write objects, which voids an earlier WillNotCome."""
        self._unavailable.discard(object_ids)
        self._on_change()

    def mark_unavailable(self, object_ids: Sequence[ObjectId], now: float) -> None:
        """Record that a local writer will not write objects."""
        self._unavailable.add(object_ids, now)
        for object_id in object_ids:
            self.fail_if_unavailable(object_id, now)

    def mark_unavailable_at(
        self, request: ReadRequest, object_id: ObjectId, source: ReadSource, now: float
    ) -> None:
        """Record that a source of a request does not have an object, and will not get it."""
        for waiter, index in list(self._waiting.get(object_id, ())):
            if waiter is request:
                request.unavailable_at.setdefault(index, set()).add(source)
                self._fail_if_unavailable(request, index, now)
        self._on_change()

    def is_awaited(self, object_id: ObjectId) -> bool:
        """Return whether a request waits for an object."""
        return object_id in self._waiting

    def not_on_disk(self, object_id: ObjectId, now: float) -> None:
        """Try other providers for an object that the disk does not load after all."""
        for request, index in list(self._waiting.get(object_id, ())):
            self._fetch(request, index)
            self._fail_if_unavailable(request, index, now)
        self._on_change()

    def fail_if_unavailable(self, object_id: ObjectId, now: float) -> None:
        """Fail requests for an object that no writer, tier or source is left to provide."""
        for request, index in list(self._waiting.get(object_id, ())):
            self._fail_if_unavailable(request, index, now)
        self._on_change()

    def expire(self, leases: Iterable[Lease], now: float) -> None:
        """Time out requests, and remove leases that the table expired.

        Objects that are here and only wait for capacity are still leased when it becomes free.
        """
        for lease in leases:
            request = self._leases.release(lease)
            if request is not None:
                request.reader.lease_expired(request, lease)
        for request in self._timeouts.due(now):
            if request.deadline > now:
                if request.unreported:
                    self._timeouts.add(request)  # its deadline was extended
                continue
            for index in sorted(request.waiting):
                self._stop_waiting(request, index)
                self._report_missing(request, index, request.result.timed_out)
        self._unavailable.expire(now)

    def flush(self, now: float) -> None:
        """Deliver what became known: at most one result per request."""
        for request in self._leases.take_starved():
            self._lease_ready(request, now)
        while self._changed:
            request = next(iter(self._changed))
            del self._changed[request]
            result, request.result = request.result, ReadResult()
            if not request.unreported:
                result.done = True
                self._timeouts.discard(request)
            if result.ready or result.will_not_come or result.timed_out:
                request.reader.deliver(request, result)

    def _wait(self, request: ReadRequest, index: int, now: float) -> None:
        if now >= request.deadline:
            self._report_missing(request, index, request.result.timed_out)
            return
        object_id = request.object_ids[index]
        request.waiting.add(index)
        self._waiting.setdefault(object_id, {})[request, index] = None
        if self.disk is not None and self.disk.load(object_id):
            return
        self._fetch(request, index)
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
        self._cancel_fetch(request, object_id)

    def _fetch(self, request: ReadRequest, index: int) -> None:
        if self.peers is not None and request.sources:
            self.peers.fetch(request, request.object_ids[index])

    def _cancel_fetch(self, request: ReadRequest, object_id: ObjectId) -> None:
        if self.peers is not None and request.sources:
            self.peers.cancel(request, object_id)

    def _fail_if_unavailable(self, request: ReadRequest, index: int, now: float) -> None:
        object_id = request.object_ids[index]
        if index not in request.waiting or not request.unavailable_at_sources(index):
            return
        if self.disk is not None and self.disk.is_loading(object_id):
            return
        missing = request.result.timed_out
        if not request.instant:
            if self._table.reservations.is_writing(object_id):
                return
            if request.local and not self._unavailable.is_known(object_id, now):
                return
            missing = request.result.will_not_come
        self._stop_waiting(request, index)
        self._report_missing(request, index, missing)

    def _report_missing(self, request: ReadRequest, index: int, missing: list[int]) -> None:
        missing.append(index)
        request.unreported -= 1
        self.misses += 1
        self._changed[request] = None

    def _lease_ready(self, request: ReadRequest, now: float) -> None:
        count, evicted = self._leases.lease_ready(request, now)
        if count:
            request.extend(now)
            request.unreported -= count
            self.hits += count
            self._changed[request] = None
        for index in evicted:
            self._wait(request, index, now)
