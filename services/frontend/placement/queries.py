"""The unanswered queries of one router session, and how long answers have been outstanding."""

import asyncio
from dataclasses import dataclass

from baton.internal.v1 import router_pb2
from baton.rpc.timing.loop_watch import LoopStopwatch


@dataclass(slots=True, eq=False)
class OpenQuery:
    """A query that was sent and is not answered."""

    answer: asyncio.Future[router_pb2.FrameFromRouter]
    waiting: LoopStopwatch
    """Time since it was sent."""
    queued: bool = False
    """Whether it waits in the router."""

    @property
    def queued_seconds(self) -> float:
        """Seconds that it has waited in the router; 0 if it does not."""
        return self.waiting.seconds if self.queued else 0.0


class OpenQueries:
    """Queries by their correlation ids. Lives on the event loop.

    A router answers within a moment or reports that a query waits; while some wait, it sends
    heartbeats.
    """

    def __init__(self) -> None:
        self._unanswered: dict[int, OpenQuery] = {}
        """Queries without any response, the oldest first."""
        self._queued: dict[int, OpenQuery] = {}
        self._heard = LoopStopwatch()

    def __len__(self) -> int:
        return len(self._unanswered) + len(self._queued)

    def open(self, number: int) -> OpenQuery:
        """Return a new query."""
        answer: asyncio.Future[router_pb2.FrameFromRouter]
        answer = asyncio.get_running_loop().create_future()
        query = self._unanswered[number] = OpenQuery(answer, LoopStopwatch())
        return query

    def get(self, number: int) -> OpenQuery | None:
        """Return an open query; None: there is none."""
        return self._unanswered.get(number) or self._queued.get(number)

    def let_wait(self, number: int) -> None:
        """Record that a query waits in the router."""
        query = self._unanswered.pop(number, None)
        if query is not None:
            query.queued = True
            self._queued[number] = query

    def close(self, number: int) -> None:
        """Forget a query, which is open."""
        if self._unanswered.pop(number, None) is None:
            del self._queued[number]

    def heard(self) -> None:
        """Record that the router sent something."""
        self._heard = LoopStopwatch()

    @property
    def owed_seconds(self) -> float:
        """Seconds that the oldest query has had no response."""
        oldest = next(iter(self._unanswered.values()), None)
        return 0.0 if oldest is None else oldest.waiting.seconds

    @property
    def silent_seconds(self) -> float:
        """Seconds without any message while queries wait."""
        return self._heard.seconds if self._queued else 0.0

    def fail_oldest(self, error: Exception) -> None:
        """Fail the query that has been without a response for the longest time."""
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None and not oldest.answer.done():
            oldest.answer.set_exception(error)

    def fail_all(self, error: type[Exception]) -> None:
        """Fail all unanswered queries."""
        for query in (*self._unanswered.values(), *self._queued.values()):
            if not query.answer.done():
                query.answer.set_exception(error())
