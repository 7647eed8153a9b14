"""A budget's month, in the router that owns it: what every frontend was charged."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from baton.tenancy.limits.budget.charges import ChargeTotals, GrantHolder
from baton.tenancy.limits.budget.record import SpendRecord
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit

WAIT_SECONDS = 0.15
"""A question waits so long for other frontends to return what they do not use."""
UNKNOWN_SECONDS = 0.5
"""And so long for what frontends were charged to be known at all."""
REFUSED_SECONDS = 0.25
"""So long it is of no use to ask again for what was refused."""
_UNKNOWN_PARTS = 100
"""Of a budget whose record is not known, so much of it is granted in all: one of 100."""
_CHUNK_PARTS = 1000
"""Of a budget, a frontend has at most so much of it ahead of need: one of 1,000."""
_LEFT_PARTS = 8
"""And, with what others have, at most so much of what is left."""
_DEPOSED_SECONDS = 5.0


@dataclass(slots=True)
class _PendingGrant:
    """A question that may yet be answered with a grant."""

    limit_term: int
    need: int
    """The sum of grants with which the smallest request can go on."""
    want: int
    """And with which all can."""
    ahead: bool
    since: float


class Account:
    """Grants what is left of a budget. Owned by a `LimitOwner`.

    Until `reported` says that every frontend that lives has said what it was charged, nothing is
    granted; until the record is `loaded`, 1 % of the budget in all. Bounded by the frontends that
    there are, and `MAX_FRONTENDS`.
    """

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.reported = False
        """Whether all frontends that live have spoken; the owner of this sets it."""
        self.loaded = False
        self.charges = ChargeTotals()
        """What every frontend was charged."""
        self.alerts: tuple[str, ...] = ()
        self._lent = 0
        """Granted before the record was known."""
        self._scarce = False
        """Nothing is granted ahead of need."""
        self._waiting: dict[str, _PendingGrant] = {}
        """By frontend, the oldest first."""
        self._deposed_until: float | None = None
        self._claimed = False
        """Whether this router has written the record."""
        self._unclaimed = False
        """Whether it is to be written though nothing changed."""
        self._used_at = 0.0

    # Sums.

    @property
    def charged(self) -> int:
        """What frontends were given and have not returned."""
        return self.charges.total

    @property
    def dirty(self) -> bool:
        """Whether the record has to be written."""
        return self.charges.dirty or self._unclaimed

    @property
    def free(self) -> int:
        """What is not charged; negative where the budget was lowered."""
        return self.limit.amount - self.charges.total

    @property
    def has_waiting(self) -> bool:
        """Whether frontends wait for answers."""
        return bool(self._waiting)

    def unused_since(self, now: float) -> float:
        """Return for how long nothing was said of it; 0 where something is still to be done."""
        if self.dirty or self._waiting or not self.loaded:
            return 0.0
        return now - self._used_at

    # Frontends.

    def answer(self, frontend: str, ask: Ask, now: float) -> Iterator[tuple[str, LimitGrant]]:
        """Take in what a frontend did; yield answers, for it and for others, by frontend."""
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
        """Yield answers to what waits: after returns, reports, the record, or some time."""
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
        """Let a frontend be gone: it stays charged as it is, until it speaks again."""
        self._waiting.pop(frontend, None)
        self.charges.drop(frontend)

    # The record.

    def load(self, record: SpendRecord | None) -> None:
        """Take in what was written down, by this router or others; None: nothing was."""
        record = record or SpendRecord("")
        for frontend in self.charges.load(record):
            self._waiting.pop(frontend, None)
        self.alerts = tuple(dict.fromkeys((*record.alerts, *self.alerts)))
        self.loaded = self._unclaimed = True

    def depose(self, now: float) -> None:
        """Grant nothing for a while: another router wrote the record, which owns it too."""
        if self._claimed:
            self._deposed_until = now + _DEPOSED_SECONDS

    def record(self, router: str, alive: Collection[str]) -> SpendRecord:
        """Return what to write down; after `load`.

        Args:
            router: incarnation of this one.
            alive: frontends that live, which are never folded.
        """
        return self.charges.record(router, alive, self.alerts)

    def written(self, record: SpendRecord) -> None:
        """Note that a record was written, as `record` returned it."""
        self._claimed, self._unclaimed, self.alerts = True, False, record.alerts
        self.charges.written(record)

    # Inside.

    @property
    def _lendable(self) -> int:
        if not self.reported or self._deposed_until is not None:
            return 0
        if self.loaded:
            return max(0, self.free)
        return max(0, min(self.free, self.limit.amount // _UNKNOWN_PARTS - self._lent))

    @property
    def _chunk(self) -> int:
        """Units that each frontend may have ahead of need."""
        free = self.free
        if not self.loaded or self._waiting or not self._lendable:
            return 0
        if self._scarce and free * _LEFT_PARTS < self.limit.amount:
            return 0
        self._scarce = False
        ahead = free // (_LEFT_PARTS * max(1, len(self.charges.holders)))
        return min(ahead, self.limit.amount // _CHUNK_PARTS)

    def _may_change(self, asker: str, waited: float) -> bool:
        """Return whether more may soon be known or returned."""
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
        """Yield to every frontend that keeps units ahead of need that it may not any more."""
        for name, holder in self.charges.holders.items():
            if holder.told_keeps and name not in self._waiting:
                yield name, self._reply(holder)

    def _reply(self, holder: GrantHolder, wait: float = 0.0) -> LimitGrant:
        holder.told_keeps = self._chunk
        if self.loaded and self.reported and self._deposed_until is None:
            left = max(0, self.free)
            reserved = max(0, self.charges.reserved - holder.held)  # it counts that itself
        else:  # what there is will be known soon
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
