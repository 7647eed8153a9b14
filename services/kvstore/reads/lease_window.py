"""The rate at which read requests get leases."""

from services.kvstore.memory.object_table import ObjectTable
from services.kvstore.memory.slot import Lease, SlotRefusal
from services.kvstore.reads.read_request import ReadRequest


class LeaseWindow:
    """Leases objects to requests within the table's cap and a window per request.

    Owned by WaitTable; no clock. One slow reader cannot take the capacity of all others: a request
    that has filled its window gets more leases once it releases some.

    Args:
        table: the objects.
        window_bytes: most bytes that one request may hold leased; at least one object.
    """

    def __init__(self, table: ObjectTable, window_bytes: int) -> None:
        self._table = table
        self._window_bytes = window_bytes
        self._request_of: dict[Lease, ReadRequest] = {}
        self._starved: dict[ReadRequest, None] = {}
        """Requests that the cap keeps from leasing, longest first."""

    def lease_ready(self, request: ReadRequest, now: float) -> tuple[int, list[int]]:
        """Lease what is ready, into the request's result.

        Returns how many objects were leased, and the indexes of those evicted meanwhile.
        """
        count, evicted = 0, []
        while request.ready and (not request.leases or request.leased_bytes < self._window_bytes):
            index = request.ready[0]
            lease = self._table.lease(request.object_ids[index], now)
            if lease is SlotRefusal.EXHAUSTED:
                self._starved[request] = None
                break
            request.ready.popleft()
            if not isinstance(lease, Lease):
                evicted.append(index)
                continue
            request.leases.add(lease)
            request.leased_bytes += lease.slot.slot_bytes
            self._request_of[lease] = request
            request.result.ready.append((index, lease))
            count += 1
        return count, evicted

    def release(self, lease: Lease) -> ReadRequest | None:
        """Remove a lease that was released or expired; return its request."""
        request = self._request_of.pop(lease, None)
        if request is not None:
            request.leases.remove(lease)
            request.leased_bytes -= lease.slot.slot_bytes
            if request.ready:
                # Leased again at the next flush, after those that have starved longer.
                self._starved[request] = None
        return request

    def forget(self, request: ReadRequest) -> None:
        """Remove an ended request from the starved ones."""
        self._starved.pop(request, None)

    def take_starved(self) -> list[ReadRequest]:
        """Return the requests that may get more leases now, longest starved first."""
        starved, self._starved = list(self._starved), {}
        return starved
