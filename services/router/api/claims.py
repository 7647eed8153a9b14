"""Claims of queries on clients' execution ids: which may run, and which they supersede."""

from dataclasses import dataclass
from typing import Protocol

from opentelemetry.trace import Span

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from services.router.admission.waiting import WaitingRequest
from services.router.state.executions import ExecutionClaim, Executions

SUPERSEDED = BatonError(Reason.ABORTED, "another execution of the request took over")
MOVED = BatonError(Reason.ABORTED, "the request moved to another stream")


class Asker(Protocol):
    """A session whose queries are answered."""

    number: int

    def frame(self) -> router_pb2.FrameFromRouter:
        """Return an empty frame of the next message."""

    def flush(self) -> None:
        """Send the frames."""

    def beat(self) -> None:
        """Send a heartbeat unless something was sent since the last one."""

    def answered(self, correlation_id: int) -> None:
        """Record that a waiting query was answered."""

    def tell_superseded(self, execution: int) -> None:
        """Notify the session that one of its executions was superseded."""


@dataclass(slots=True, eq=False)
class PendingQuery:
    """The state needed to answer a query."""

    asker: Asker
    waiting: WaitingRequest
    correlation_id: int
    request_id: str
    claim: ExecutionClaim | None
    span: Span | None
    ahead: int = 0
    """Waiting requests for its model on its arrival."""

    @property
    def execution(self) -> int:
        """The execution of its claim, which it must have."""
        assert self.claim is not None
        return self.claim.execution


class QueryClaims:
    """The claims of waiting and of placed queries. Lives on the event loop.

    Waiting queries with the same key belong to one execution, on one session: a request may query
    for several of its streams at the same time.
    """

    def __init__(self) -> None:
        self._executions = Executions()
        self._waiting: dict[bytes, dict[int, PendingQuery]] = {}
        """Waiting queries by key, then by number."""

    @property
    def waiting(self) -> int:
        """Number of keys with waiting queries."""
        return len(self._waiting)

    def check(self, query: PendingQuery, now: float) -> list[tuple[PendingQuery, BatonError]]:
        """Check that a query may run.

        Args:
            query: the new query.
            now: a monotonic clock, in seconds.

        Returns:
            The waiting queries that it supersedes, each with its error: SUPERSEDED if their
            execution
                ends; MOVED if they belong to the query's own execution, on a session that it has
                left.

        Raises:
            BatonError: ALREADY_EXISTS.
        """
        claim = query.claim
        if claim is None:
            return []
        error = None
        older = list(self._waiting.get(claim.key, {}).values())
        if older and older[0].execution != claim.execution:
            if not claim.take_over:
                raise BatonError(
                    Reason.ALREADY_EXISTS, "a request with this execution id is already waiting"
                )
            error = SUPERSEDED
        elif older and older[0].asker is not query.asker:
            error = MOVED
        self._executions.check(claim, now)
        return [(one, error) for one in older] if error is not None else []

    def hold(self, query: PendingQuery) -> None:
        """Record that a query waits; those that it superseded are forgotten."""
        if query.claim is not None:
            self._waiting.setdefault(query.claim.key, {})[query.waiting.number] = query

    def forget(self, query: PendingQuery) -> None:
        """Record that a query no longer waits."""
        if query.claim is not None:
            same = self._waiting[query.claim.key]
            del same[query.waiting.number]
            if not same:
                del self._waiting[query.claim.key]

    def begin(self, query: PendingQuery, ticket: str) -> tuple[int, int] | None:
        """Record that a query was placed.

        Returns:
            Session and execution that it superseded; None: there is none.
        """
        if query.claim is None:
            return None
        return self._executions.begin(query.claim, query.asker.number, ticket)

    def end_ticket(self, session: int, ticket: str, now: float, *, finished: bool) -> None:
        """Record that a ticket was returned, of a request that finished or did not."""
        self._executions.end_ticket(session, ticket, now, finished=finished)

    def end_session(self, session: int) -> None:
        """Forget the executions of a session."""
        self._executions.end_session(session)
