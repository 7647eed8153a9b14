"""Deadlines of read requests."""

import heapq
from itertools import count

from services.kvstore.reads.read_request import ReadRequest


class Timeouts:
    """Requests that are not fully answered, by deadline. Owned by WaitTable; no clock.

    Bounded by the requests: entries of ended ones are removed before they outnumber the others.
    """

    def __init__(self) -> None:
        self._requests: set[ReadRequest] = set()
        self._heap: list[tuple[float, int, ReadRequest]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: ReadRequest) -> None:
        """Add a request."""
        self._requests.add(request)
        heapq.heappush(self._heap, (request.deadline, next(self._order), request))

    def discard(self, request: ReadRequest) -> None:
        """Remove a request that ended."""
        self._requests.discard(request)
        if len(self._heap) > 2 * len(self._requests) + 64:
            self._heap = [entry for entry in self._heap if entry[2] in self._requests]
            heapq.heapify(self._heap)

    def due(self, now: float) -> list[ReadRequest]:
        """Return the requests whose deadline has come, once each, earliest first."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due
