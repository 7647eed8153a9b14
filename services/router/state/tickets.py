"""The load that placements put on workers before the workers' own load reports show it.

A placement sends work to one or two workers. Until a worker's report acknowledges the ticket, its
in-flight load is added to the reported load; from then on the report itself contains the work.
In-flight load also ends with its worker, and after a timeout if no report ever acknowledges it. A
ticket ends when its frontend returns it or when its session ends. Sums are integers, so that they
are exactly zero when no ticket is open. The targets of its streams count until then, whether or not
its load is acknowledged.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from services.router.state.instances import LOWEST
from services.router.state.stream_targets import StreamPlacement, StreamTargets


@dataclass(slots=True, unsafe_hash=True)
class InFlightLoad:
    """Work in flight to a worker.

    Immutable by convention: `frozen` would make construction take three times as long.
    """

    prompt_tokens: int = 0
    """Prompt tokens to be computed there."""
    sequences: int = 0
    pages: int = 0

    def __add__(self, other: "InFlightLoad") -> "InFlightLoad":
        return InFlightLoad(
            self.prompt_tokens + other.prompt_tokens,
            self.sequences + other.sequences,
            self.pages + other.pages,
        )

    def __sub__(self, other: "InFlightLoad") -> "InFlightLoad":
        return InFlightLoad(
            self.prompt_tokens - other.prompt_tokens,
            self.sequences - other.sequences,
            self.pages - other.pages,
        )


NOTHING = InFlightLoad()
_NOBODY: frozenset[str] = frozenset()


class IssuedTicket(NamedTuple):
    """A ticket that was opened."""

    ticket: str
    changed: AbstractSet[str]
    """Workers that `return_tickets` would return for the ticket that had to end for it."""


@dataclass(slots=True)
class _Ticket:
    session: int
    workers: tuple[str, ...]
    """Workers that its work was sent to."""
    unacknowledged: dict[str, InFlightLoad]
    """By worker: load that no report has acknowledged."""
    placement: StreamPlacement | None
    targets: StreamTargets | None
    """The targets that its streams are counted in; None, like the one before: it has none."""
    rank: int = 0
    """Of its class."""


@dataclass(slots=True)
class _WorkerLoad:
    total: InFlightLoad = NOTHING
    by_rank: dict[int, InFlightLoad] = field(default_factory=dict)
    """Its parts by class."""
    tickets: set[str] = field(default_factory=set)
    """Ids of tickets that the worker has not acknowledged."""


class TicketTable:
    """All open tickets of one router. Not thread-safe: owned by one event loop."""

    def __init__(self, router_id: str, *, limit: int = 100_000, expiry: float = 10.0) -> None:
        """Start with no tickets.

        Args:
            router_id: makes ticket ids unique across routers and their restarts.
            limit: most open tickets. One more ends the oldest: its load is forgotten, its work
                continues.
            expiry: seconds after which load that was never acknowledged no longer counts.
        """
        self._router_id = router_id
        self._limit = limit
        self._expiry = expiry
        self._tickets: OrderedDict[str, _Ticket] = OrderedDict()
        self._issued_at: OrderedDict[str, float] = OrderedDict()
        """Time of issue of tickets that are not wholly acknowledged."""
        self._sessions: dict[int, set[str]] = {}
        self._workers: dict[str, _WorkerLoad] = {}
        self._targets: dict[str, StreamTargets] = {}
        """Targets of open tickets' streams, by worker. A returning worker starts with new ones."""
        self._issued = 0

    def __len__(self) -> int:
        """Return the number of open tickets."""
        return len(self._tickets)

    def in_flight(self, worker_id: str, rank: int = LOWEST) -> InFlightLoad:
        """Return the work in flight to a worker that its reports do not contain.

        Args:
            worker_id: the worker.
            rank: of a class; work of lower classes is left out.
        """
        worker = self._workers.get(worker_id)
        if worker is None:
            return NOTHING
        if rank == LOWEST:
            return worker.total
        return sum((load for of, load in worker.by_rank.items() if of <= rank), NOTHING)

    def rank_of(self, ticket_id: str) -> int:
        """Return the rank of an open ticket's class."""
        return self._tickets[ticket_id].rank

    def stream_targets(self, worker_id: str) -> StreamTargets | None:
        """Return the targets of streams on a worker; None: no ticket has any there."""
        return self._targets.get(worker_id)

    def issue(
        self,
        session: int,
        now: float,
        loads: dict[str, InFlightLoad],
        placement: StreamPlacement | None = None,
        rank: int = 0,
    ) -> IssuedTicket:
        """Open a ticket for a placement.

        Args:
            session: the frontend's session that the ticket ends with.
            now: a monotonic clock, in seconds.
            loads: by worker.
            placement: of its streams; None: it has none.
            rank: of its class.
        """
        full = len(self._tickets) >= self._limit
        changed = self._end(next(iter(self._tickets))) if full else _NOBODY
        self._issued += 1
        ticket_id = f"{self._router_id}/{self._issued}"
        targets = None
        if placement is not None:
            targets = self._targets.get(placement.worker_id)
            if targets is None:
                targets = self._targets[placement.worker_id] = StreamTargets()
            targets.add(placement.itl_target, placement.streams)
        self._tickets[ticket_id] = _Ticket(
            session, tuple(loads), dict(loads), placement, targets, rank
        )
        if loads:
            self._issued_at[ticket_id] = now
        self._sessions.setdefault(session, set()).add(ticket_id)
        for worker_id, load in loads.items():
            worker = self._workers.setdefault(worker_id, _WorkerLoad())
            worker.total += load
            worker.by_rank[rank] = worker.by_rank.get(rank, NOTHING) + load
            worker.tickets.add(ticket_id)
        return IssuedTicket(ticket_id, changed)

    def acknowledged_by(self, session: int, ticket_id: str) -> list[str]:
        """Return the workers whose reports contain the work of a session's ticket, or did."""
        ticket = self._tickets.get(ticket_id)
        if ticket is None or ticket.session != session:
            return []
        return [one for one in ticket.workers if one not in ticket.unacknowledged]

    def return_tickets(self, session: int, ticket_ids: Iterable[str]) -> set[str]:
        """End tickets of a session; unknown ones and those of other sessions are ignored.

        Returns:
            Workers whose in-flight load or stream targets changed.
        """
        changed: set[str] = set()
        for ticket_id in ticket_ids:
            ticket = self._tickets.get(ticket_id)
            if ticket is not None and ticket.session == session:
                changed |= self._end(ticket_id)
        return changed

    def end_session(self, session: int) -> set[str]:
        """End every ticket of a session; return what `return_tickets` returns."""
        return self.return_tickets(session, list(self._sessions.get(session, ())))

    def acknowledge(self, worker_id: str, ticket_ids: Iterable[str]) -> InFlightLoad:
        """Stop counting the load of these tickets on a worker: its report contains their work.

        Tickets of other routers are not known here, and the report already contains their work.

        Returns:
            The load that no longer counts.
        """
        worker = self._workers.get(worker_id)
        if worker is None:
            return NOTHING
        before = worker.total
        for ticket_id in worker.tickets.intersection(ticket_ids):
            self._release(ticket_id, worker_id)
        return before - worker.total

    def remove_worker(self, worker_id: str) -> None:
        """Stop counting the load and streams of a worker that left the cluster."""
        self._targets.pop(worker_id, None)
        worker = self._workers.get(worker_id)
        if worker is not None:
            for ticket_id in list(worker.tickets):
                self._release(ticket_id, worker_id)

    def expire(self, now: float) -> set[str]:
        """Stop counting load that was not acknowledged in time; return the workers concerned.

        The tickets stay open until they are returned.
        """
        changed: set[str] = set()
        while self._issued_at:
            ticket_id, issued_at = next(iter(self._issued_at.items()))
            if now - issued_at < self._expiry:
                break
            changed |= self._release_all(ticket_id)
        return changed

    def _end(self, ticket_id: str) -> set[str]:
        changed = self._release_all(ticket_id)
        ticket = self._tickets.pop(ticket_id)
        session = self._sessions[ticket.session]
        session.discard(ticket_id)
        if not session:
            del self._sessions[ticket.session]
        if ticket.placement is not None and ticket.targets is not None:
            changed |= self._end_streams(ticket.placement, ticket.targets)
        return changed

    def _end_streams(self, placement: StreamPlacement, targets: StreamTargets) -> set[str]:
        """Return the worker if the strictest target of its streams may have changed."""
        worker_id = placement.worker_id
        matters = targets.strictest < math.inf
        targets.end(placement.itl_target, placement.streams)
        if self._targets.get(worker_id) is not targets:
            return set()  # the worker left, with its streams
        if not targets.streams:
            del self._targets[worker_id]
        return {worker_id} if matters else set()

    def _release_all(self, ticket_id: str) -> set[str]:
        workers = set(self._tickets[ticket_id].unacknowledged)
        for worker_id in workers:
            self._release(ticket_id, worker_id)
        return workers

    def _release(self, ticket_id: str, worker_id: str) -> None:
        ticket = self._tickets[ticket_id]
        worker = self._workers[worker_id]
        load = ticket.unacknowledged.pop(worker_id)
        worker.total -= load
        worker.by_rank[ticket.rank] -= load
        worker.tickets.discard(ticket_id)
        if not worker.tickets:
            del self._workers[worker_id]
        if not ticket.unacknowledged:
            del self._issued_at[ticket_id]
