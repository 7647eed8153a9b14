"""The queries of one session that a router has not answered, and for how long it owes something."""

import asyncio
from dataclasses import dataclass

from baton.internal.v1 import router_pb2
from baton.rpc.timing.loop_watch import LoopStopwatch


@dataclass(slots=True, eq=False)
class OpenQuery:
    """A query that was sent and is not answered."""

    answer: asyncio.Future[router_pb2.FrameFromRouter]
    waiting: LoopStopwatch
    """Since it was sent."""
    queued: bool = False
    """The router lets it wait."""

    @property
    def queued_seconds(self) -> float:
        """Since when the router lets it wait; 0 if it does not."""
        return self.waiting.seconds if self.queued else 0.0


class OpenQueries:
    """Queries by their correlation ids. Lives on the event loop.

    A router answers within a moment or says that a query waits; while some wait, it is heard of.
    """

    def __init__(self) -> None:
        self._unanswered: dict[int, OpenQuery] = {}
        """Of which nothing was said, the oldest first."""
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
        """Return an open query; None: there is no such."""
        return self._unanswered.get(number) or self._queued.get(number)

    def let_wait(self, number: int) -> None:
        """Take in that a query waits in the router."""
        query = self._unanswered.pop(number, None)
        if query is not None:
            query.queued = True
            self._queued[number] = query

    def close(self, number: int) -> None:
        """Forget a query, which is open."""
        if self._unanswered.pop(number, None) is None:
            del self._queued[number]

    def heard(self) -> None:
        """Take in that the router said something."""
        self._heard = LoopStopwatch()

    @property
    def owed_seconds(self) -> float:
        """For how long nothing was said of some query."""
        oldest = next(iter(self._unanswered.values()), None)
        return 0.0 if oldest is None else oldest.waiting.seconds

    @property
    def silent_seconds(self) -> float:
        """For how long nothing at all was said, while queries wait."""
        return self._heard.seconds if self._queued else 0.0

    def fail_oldest(self, error: Exception) -> None:
        """Let the query fail of which nothing was said for the longest time."""
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None and not oldest.answer.done():
            oldest.answer.set_exception(error)

    def fail_all(self, error: type[Exception]) -> None:
        """Let all queries fail that have no answer."""
        for query in (*self._unanswered.values(), *self._queued.values()):
            if not query.answer.done():
                query.answer.set_exception(error())
