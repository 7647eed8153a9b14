"""One month of a budget, in the router that owns it: the charges of all frontends."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from baton.tenancy.limits.budget.charges import ChargeTotals, GrantHolder
from baton.tenancy.limits.budget.record import SpendRecord
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit

WAIT_SECONDS = 0.15
"""How long a request for units waits for other frontends to return unused ones."""
UNKNOWN_SECONDS = 0.5
"""How long it waits for the charges of frontends to become known."""
REFUSED_SECONDS = 0.25
"""After a rejection, asking again is useless for this long."""
_UNKNOWN_PARTS = 100
"""Share of a budget that may be granted while its record is unknown: 1/100."""
_CHUNK_PARTS = 1000
"""Share of a budget that a frontend may hold ahead of need: at most 1/1,000."""
_LEFT_PARTS = 8
"""Share of the remainder that frontends may hold ahead of need together: at most 1/8."""
_DEPOSED_SECONDS = 5.0


@dataclass(slots=True)
class _PendingGrant:
    """A request that may still be answered with a grant."""

    limit_term: int
    need: int
    """Total grants that the smallest waiting request needs."""
    want: int
    """Total grants that all waiting requests need."""
    ahead: bool
    since: float


class Account:
    """Grants the remainder of a budget. Owned by a `LimitOwner`.

    Nothing is granted until `reported` is set, when every live frontend has reported its charges;
    until the record is `loaded`, at most 1 % of the budget. Bounded by the number of frontends, and
    `MAX_FRONTENDS`.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.reported = False
        """Whether all live frontends have reported; set by the owner of this."""
        self.loaded = False
        self.charges = ChargeTotals()
        """Charges of every frontend."""
        self.alerts: tuple[str, ...] = ()
        self._lent = 0
        """Units granted before the record was known."""
        self._scarce = False
        """Whether nothing is granted ahead of need."""
        self._waiting: dict[str, _PendingGrant] = {}
        """By frontend, oldest first."""
        self._deposed_until: float | None = None
        self._claimed = False
        """Whether this router has written the record."""
        self._unclaimed = False
        """Whether to write the record although nothing changed."""
        self._used_at = 0.0

    # Sums.

    @property
    def charged(self) -> int:
        """Units granted to frontends and not returned."""
        return self.charges.total

    @property
    def dirty(self) -> bool:
        """Whether the record has to be written."""
        return self.charges.dirty or self._unclaimed

    @property
    def free(self) -> int:
        """Units not charged; negative if the budget was lowered."""
        return self.limit.amount - self.charges.total

    @property
    def has_waiting(self) -> bool:
        """Whether frontends wait for answers."""
        return bool(self._waiting)

    def unused_since(self, now: float) -> float:
        """Return how long ago it was last mentioned; 0 if work is pending."""
        if self.dirty or self._waiting or not self.loaded:
            return 0.0
        return now - self._used_at

    # Frontends.

    def answer(self, frontend: str, ask: Ask, now: float) -> Iterator[tuple[str, LimitGrant]]:
        """Record a frontend's report; yield replies, to it and to others, by frontend."""
        self._used_at = now
        if ask.limit.version >= self.limit.version:
            self.limit = ask.limit
        holder = self.charges.holders.get(frontend)
        if holder is not None and ask.term < holder.term:
            return
        if holder is None or ask.term > holder.term:
            gone = self.charges.gone.get(frontend)
            if gone is not None and ask.term < gone.term:
                return
            if ask.granted != ask.base or (gone is not None and ask.term == gone.term):
                yield frontend, LimitGrant(ask.limit.id, ask.term, 0, 0, 0, 0.0, restart=True)
                return
            self._waiting.pop(frontend, None)
            self.charges.begin(frontend, ask.term, ask.base)
            holder = self.charges.holders[frontend]
        elif ask.granted > holder.granted:
            yield frontend, LimitGrant(ask.limit.id, ask.term, 0, 0, 0, 0.0, restart=True)
            return
        self.charges.take_in(frontend, ask.returned, ask.settled)
        holder.held = max(0, ask.granted - ask.spent)
        holder.keeps = ask.keeps
        if ask.need:
            waiting = self._waiting.get(frontend)
            since = now if waiting is None else waiting.since
            self._waiting[frontend] = _PendingGrant(
                ask.term, ask.granted + ask.need, ask.granted + ask.want, ask.ahead, since
            )
        else:
            self._waiting.pop(frontend, None)
        yield from self.serve(now)
        if not ask.need:
            if ask.ahead:
                self._grant_ahead(frontend, holder)
            yield frontend, self._reply(holder)

    def serve(self, now: float) -> Iterator[tuple[str, LimitGrant]]:
        """Yield replies to waiting requests: after returns, reports, the record, or some time."""
        if self._deposed_until is not None and now >= self._deposed_until:
            self._deposed_until = None
        for frontend, waiting in list(self._waiting.items()):
            holder = self.charges.holders[frontend]
            if holder.granted >= waiting.need:
                del self._waiting[frontend]
                yield frontend, self._reply(holder)
                continue
            lendable = self._lendable
            if lendable >= waiting.need - holder.granted:
                del self._waiting[frontend]
                self._grant(frontend, min(lendable, waiting.want - holder.granted))
                if waiting.ahead:
                    self._grant_ahead(frontend, holder)
                yield frontend, self._reply(holder)
                continue
            self._scarce = True
            yield from self._recall()
            if self._may_change(frontend, now - waiting.since):
                continue
            del self._waiting[frontend]
            yield frontend, self._reply(holder, wait=REFUSED_SECONDS)

    def drop(self, frontend: str) -> None:
        """Drop a frontend that is gone: its charge stays until it reports again."""
        self._waiting.pop(frontend, None)
        self.charges.drop(frontend)

    # The record.

    def load(self, record: SpendRecord | None) -> None:
        """Load the stored record, by this router or others; None: there is none."""
        record = record or SpendRecord("")
        for frontend in self.charges.load(record):
            self._waiting.pop(frontend, None)
        self.alerts = tuple(dict.fromkeys((*record.alerts, *self.alerts)))
        self.loaded = self._unclaimed = True

    def depose(self, now: float) -> None:
        """Grant nothing for a while: another router, which also owns the budget, wrote the
        record."""
        if self._claimed:
            self._deposed_until = now + _DEPOSED_SECONDS

    def record(self, router: str, alive: Collection[str]) -> SpendRecord:
        """Return the record to write; after `load`.

        Args:
            router: incarnation of this router.
            alive: live frontends, which are never folded.
        """
        return self.charges.record(router, alive, self.alerts)

    def written(self, record: SpendRecord) -> None:
        """Note that a record returned by `record` was written."""
        self._claimed, self._unclaimed, self.alerts = True, False, record.alerts
        self.charges.written(record)

    # Internals.

    @property
    def _lendable(self) -> int:
        if not self.reported or self._deposed_until is not None:
            return 0
        if self.loaded:
            return max(0, self.free)
        return max(0, min(self.free, self.limit.amount // _UNKNOWN_PARTS - self._lent))

    @property
    def _chunk(self) -> int:
        """Units that each frontend may hold ahead of need."""
        free = self.free
        if not self.loaded or self._waiting or not self._lendable:
            return 0
        if self._scarce and free * _LEFT_PARTS < self.limit.amount:
            return 0
        self._scarce = False
        ahead = free // (_LEFT_PARTS * max(1, len(self.charges.holders)))
        return min(ahead, self.limit.amount // _CHUNK_PARTS)

    def _may_change(self, asker: str, waited: float) -> bool:
        """Return whether more units may soon become known or be returned."""
        if not (self.loaded and self.reported):
            return waited < UNKNOWN_SECONDS
        if waited >= WAIT_SECONDS:
            return False
        return any(one.keeps for name, one in self.charges.holders.items() if name != asker)

    def _grant(self, frontend: str, units: int) -> None:
        if not self.loaded:
            self._lent += units
        self.charges.grant(frontend, units)

    def _grant_ahead(self, frontend: str, holder: GrantHolder) -> None:
        ahead = min(self._chunk - holder.held, self._lendable)
        if ahead > 0:
            self._grant(frontend, ahead)

    def _recall(self) -> Iterator[tuple[str, LimitGrant]]:
        """Yield a reply to every frontend that holds more units ahead of need than it now may."""
        for name, holder in self.charges.holders.items():
            if holder.told_keeps and name not in self._waiting:
                yield name, self._reply(holder)

    def _reply(self, holder: GrantHolder, wait: float = 0.0) -> LimitGrant:
        holder.told_keeps = self._chunk
        if self.loaded and self.reported and self._deposed_until is None:
            left = max(0, self.free)
            reserved = max(0, self.charges.reserved - holder.held)  # the frontend counts its own
        else:  # the remainder will be known soon
            left, reserved = self._lendable, self.limit.amount
        return LimitGrant(
            self.limit.id,
            holder.term,
            holder.granted,
            holder.told_keeps,
            left,
            wait,
            reserved=reserved,
        )
