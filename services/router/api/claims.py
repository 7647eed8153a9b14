"""Queries under ids of clients: which may run, and which an older one has to go for."""

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
        """Return a frame to fill in, of those that are sent together."""

    def flush(self) -> None:
        """Send the frames."""

    def beat(self) -> None:
        """Say that the router lives, if nothing was said since the last beat."""

    def answered(self, correlation_id: int) -> None:
        """Note that a query that waited is answered."""

    def tell_superseded(self, execution: int) -> None:
        """Tell that another execution took over from one of this session."""


@dataclass(slots=True, eq=False)
class PendingQuery:
    """What is needed of a query to answer it."""

    asker: Asker
    waiting: WaitingRequest
    correlation_id: int
    request_id: str
    claim: ExecutionClaim | None
    span: Span | None
    ahead: int = 0
    """Requests that waited for its model when it came."""

    @property
    def execution(self) -> int:
        """Of its claim, which it has."""
        assert self.claim is not None
        return self.claim.execution


class QueryClaims:
    """The claims of queries that wait, and of those that were placed. Lives on the event loop.

    Those that wait with one key are of one execution, on one session: a request may ask for several
    of its streams at once.
    """

    def __init__(self) -> None:
        self._executions = Executions()
        self._waiting: dict[bytes, dict[int, PendingQuery]] = {}
        """By key, then by number."""

    @property
    def waiting(self) -> int:
        """Number of keys that queries wait with."""
        return len(self._waiting)

    def check(self, query: PendingQuery, now: float) -> list[tuple[PendingQuery, BatonError]]:
        """Check that a query may run.

        Args:
            query: that came.
            now: a monotonic clock, in seconds.

        Returns:
            The queries that wait and have to go for it, with what they are answered: SUPERSEDED
            where their execution is to end; MOVED where it is the query's own, which asked on a
            session that it has left.

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
        """Note that a query waits; those that had to go for it are forgotten."""
        if query.claim is not None:
            self._waiting.setdefault(query.claim.key, {})[query.waiting.number] = query

    def forget(self, query: PendingQuery) -> None:
        """Note that a query waits no longer."""
        if query.claim is not None:
            same = self._waiting[query.claim.key]
            del same[query.waiting.number]
            if not same:
                del self._waiting[query.claim.key]

    def begin(self, query: PendingQuery, ticket: str) -> tuple[int, int] | None:
        """Note that a query was placed.

        Returns:
            Session and execution that it took over from; None: there is none.
        """
        if query.claim is None:
            return None
        return self._executions.begin(query.claim, query.asker.number, ticket)

    def end_ticket(self, session: int, ticket: str, now: float, *, finished: bool) -> None:
        """Note that a ticket was returned, of a request that finished or did not."""
        self._executions.end_ticket(session, ticket, now, finished=finished)

    def end_session(self, session: int) -> None:
        """Forget what a session's requests run."""
        self._executions.end_session(session)
