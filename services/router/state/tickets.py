"""What placements cost before workers' load reports show it.

A placement pledges work to one or two workers. Until a worker's report echoes the ticket, its
pledge is added to the worker's load; from then on the report itself contains the work. A pledge
also ends with its worker, and after a while should no report ever echo it. A ticket ends when its
frontend returns it or when its session ends. Sums are integers, so that they are exactly zero when
nothing is open.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pledge:
    """Work that is on its way to a worker."""

    prompt_tokens: int = 0
    """To be computed there."""
    sequences: int = 0
    pages: int = 0

    def __add__(self, other: "Pledge") -> "Pledge":
        return Pledge(
            self.prompt_tokens + other.prompt_tokens,
            self.sequences + other.sequences,
            self.pages + other.pages,
        )

    def __sub__(self, other: "Pledge") -> "Pledge":
        return Pledge(
            self.prompt_tokens - other.prompt_tokens,
            self.sequences - other.sequences,
            self.pages - other.pages,
        )


NOTHING = Pledge()


@dataclass(slots=True)
class _Ticket:
    session: int
    unseen: dict[str, Pledge]
    """By worker: pledges that no report has echoed."""


@dataclass(slots=True)
class _Worker:
    total: Pledge = NOTHING
    unseen: set[str] = field(default_factory=set)


class TicketBook:
    """All open tickets of one router. Not thread-safe: one loop owns it."""

    def __init__(self, router_id: str, *, limit: int = 100_000, expiry: float = 10.0) -> None:
        """Start with no tickets.

        Args:
            router_id: makes ticket ids unique across routers and their restarts.
            limit: most open tickets. One more ends the oldest: its cost is forgotten, its work
                goes on.
            expiry: seconds after which a pledge that was never echoed costs nothing.
        """
        self._router_id = router_id
        self._limit = limit
        self._expiry = expiry
        self._tickets: OrderedDict[str, _Ticket] = OrderedDict()
        self._unsettled: OrderedDict[str, float] = OrderedDict()
        self._sessions: dict[int, set[str]] = {}
        self._workers: dict[str, _Worker] = {}
        self._issued = 0

    def __len__(self) -> int:
        """Open tickets."""
        return len(self._tickets)

    def pledged(self, worker_id: str) -> Pledge:
        """Work on its way to a worker that its reports don't show."""
        worker = self._workers.get(worker_id)
        return worker.total if worker is not None else NOTHING

    def issue(self, session: int, now: float, pledges: dict[str, Pledge]) -> str:
        """Open a ticket for a placement and answer its id.

        Args:
            session: the frontend's session that it dies with.
            now: a monotonic clock, in seconds.
            pledges: by worker.
        """
        if len(self._tickets) >= self._limit:
            self._end(next(iter(self._tickets)))
        self._issued += 1
        ticket_id = f"{self._router_id}/{self._issued}"
        self._tickets[ticket_id] = _Ticket(session, dict(pledges))
        if pledges:
            self._unsettled[ticket_id] = now
        self._sessions.setdefault(session, set()).add(ticket_id)
        for worker_id, pledge in pledges.items():
            worker = self._workers.setdefault(worker_id, _Worker())
            worker.total += pledge
            worker.unseen.add(ticket_id)
        return ticket_id

    def give_back(self, session: int, ticket_ids: Iterable[str]) -> set[str]:
        """End tickets of a session; unknown ones and those of other sessions are left alone.

        Returns:
            Workers whose pledged work changed.
        """
        changed: set[str] = set()
        for ticket_id in ticket_ids:
            ticket = self._tickets.get(ticket_id)
            if ticket is not None and ticket.session == session:
                changed |= self._end(ticket_id)
        return changed

    def end_session(self, session: int) -> set[str]:
        """End every ticket of a session. Answers the workers whose pledged work changed."""
        return self.give_back(session, list(self._sessions.get(session, ())))

    def echoed(self, worker_id: str, ticket_ids: Iterable[str]) -> bool:
        """A worker's report contains the work of these tickets. Answers whether that was news.

        Tickets of other routers are simply not known here: the report holds their work already.
        """
        worker = self._workers.get(worker_id)
        if worker is None:
            return False
        news = worker.unseen.intersection(ticket_ids)
        for ticket_id in news:
            self._settle(ticket_id, worker_id)
        return bool(news)

    def forget_worker(self, worker_id: str) -> None:
        """A worker is gone, and what was pledged to it with it."""
        worker = self._workers.get(worker_id)
        if worker is not None:
            for ticket_id in list(worker.unseen):
                self._settle(ticket_id, worker_id)

    def expire(self, now: float) -> set[str]:
        """Stop counting pledges that were never echoed; answers the workers concerned.

        The tickets stay open until they are returned.
        """
        changed: set[str] = set()
        while self._unsettled:
            ticket_id, pledged_at = next(iter(self._unsettled.items()))
            if now - pledged_at < self._expiry:
                break
            for worker_id in list(self._tickets[ticket_id].unseen):
                self._settle(ticket_id, worker_id)
                changed.add(worker_id)
        return changed

    def _end(self, ticket_id: str) -> set[str]:
        workers = set(self._tickets[ticket_id].unseen)
        for worker_id in workers:
            self._settle(ticket_id, worker_id)
        ticket = self._tickets.pop(ticket_id)
        self._unsettled.pop(ticket_id, None)
        session = self._sessions[ticket.session]
        session.discard(ticket_id)
        if not session:
            del self._sessions[ticket.session]
        return workers

    def _settle(self, ticket_id: str, worker_id: str) -> None:
        ticket = self._tickets[ticket_id]
        worker = self._workers[worker_id]
        worker.total -= ticket.unseen.pop(worker_id)
        worker.unseen.discard(ticket_id)
        if not worker.unseen:
            del self._workers[worker_id]
        if not ticket.unseen:
            del self._unsettled[ticket_id]
