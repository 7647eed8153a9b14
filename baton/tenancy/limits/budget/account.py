"""A budget's month, in the router that owns it: what every frontend was charged."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from baton.tenancy.limits.budget.record import Charge, SpendRecord
from baton.tenancy.limits.messages import Answer, Ask
from baton.tenancy.limits.spec import Limit

WAIT_SECONDS = 0.15
"""A question waits so long for other frontends to return what they do not use."""
UNKNOWN_SECONDS = 0.5
"""And so long for what frontends were charged to be known at all."""
REFUSED_SECONDS = 0.25
"""So long it is of no use to ask again for what was refused."""
FOLD_SECONDS = 3600.0
"""What a frontend was charged that is gone for so long is kept as part of one sum."""
MAX_FRONTENDS = 512
"""In a record; of more, those that are gone are folded at once."""
_UNKNOWN_PARTS = 100
"""Of a budget whose record is not known, so much of it is granted in all: one of 100."""
_CHUNK_PARTS = 1000
"""Of a budget, a frontend has at most so much of it ahead of need: one of 1,000."""
_LEFT_PARTS = 8
"""And, with what others have, at most so much of what is left."""
_DEPOSED_SECONDS = 5.0


@dataclass(slots=True)
class _Holder:
    """A frontend that speaks to this owner."""

    term: int
    granted: int
    returned: int = 0
    settled: int = 0
    held: int = 0
    """Of what it was granted: not reserved, as it told."""
    keeps: int = 0
    """Ahead of need, as it was told when it spoke last."""
    told_keeps: int = 0
    at_seconds: int = 0

    @property
    def charged(self) -> int:
        return self.granted - self.returned

    def charge(self) -> Charge:
        return Charge(self.term, self.charged, self.settled, self.at_seconds)


@dataclass(slots=True)
class _Waiting:
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
        self.dirty = False
        """Whether the record has to be written."""
        self.wall_seconds = 0.0
        """The time since the Unix epoch; the owner of this sets it."""
        self.alerts: tuple[str, ...] = ()
        self._holders: dict[str, _Holder] = {}
        self._gone: dict[str, Charge] = {}
        """Of frontends that do not speak to this owner, or not yet."""
        self._unwritten: set[str] = set()
        """Frontends whose charge may not be in the record."""
        self._folded_charged = self._folded_settled = 0
        self._charged = 0
        """The sum of all."""
        self._lent = 0
        """Granted before the record was known."""
        self._scarce = False
        """Nothing is granted ahead of need."""
        self._waiting: dict[str, _Waiting] = {}
        """By frontend, the oldest first."""
        self._deposed_until: float | None = None
        self._claimed = False
        self._used_at = 0.0

    # Sums.

    @property
    def charged(self) -> int:
        """What frontends were given and have not returned."""
        return self._charged

    @property
    def free(self) -> int:
        """What is not charged; negative where the budget was lowered."""
        return self.limit.amount - self._charged

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

    def answer(self, frontend: str, ask: Ask, now: float) -> Iterator[tuple[str, Answer]]:
        """Take in what a frontend did; yield answers, for it and for others, by frontend."""
        self._used_at = now
        if ask.limit.version >= self.limit.version:
            self.limit = ask.limit
        holder = self._holders.get(frontend)
        if holder is not None and ask.term < holder.term:
            return
        if holder is None or ask.term > holder.term:
            gone = self._gone.get(frontend)
            if gone is not None and ask.term < gone.term:
                return
            if ask.granted != ask.base or (gone is not None and ask.term == gone.term):
                yield frontend, Answer(ask.limit.id, ask.term, 0, 0, 0, 0.0, restart=True)
                return
            self._begin(frontend, ask)
            holder = self._holders[frontend]
        elif ask.granted > holder.granted:
            yield frontend, Answer(ask.limit.id, ask.term, 0, 0, 0, 0.0, restart=True)
            return
        self._take_in(frontend, holder, ask)
        if ask.need:
            waiting = self._waiting.get(frontend)
            since = now if waiting is None else waiting.since
            self._waiting[frontend] = _Waiting(
                ask.term, ask.granted + ask.need, ask.granted + ask.want, ask.ahead, since
            )
        else:
            self._waiting.pop(frontend, None)
        yield from self.serve(now)
        if not ask.need:
            if ask.ahead:
                self._grant_ahead(frontend, holder)
            yield frontend, self._reply(holder)

    def serve(self, now: float) -> Iterator[tuple[str, Answer]]:
        """Yield answers to what waits: after returns, reports, the record, or some time."""
        if self._deposed_until is not None and now >= self._deposed_until:
            self._deposed_until = None
        for frontend, waiting in list(self._waiting.items()):
            holder = self._holders[frontend]
            if holder.granted >= waiting.need:
                del self._waiting[frontend]
                yield frontend, self._reply(holder)
                continue
            lendable = self._lendable
            if lendable >= waiting.need - holder.granted:
                del self._waiting[frontend]
                self._grant(frontend, holder, min(lendable, waiting.want - holder.granted))
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
        holder = self._holders.pop(frontend, None)
        if holder is not None:
            self._gone[frontend] = holder.charge()

    # The record.

    def load(self, record: SpendRecord | None) -> None:
        """Take in what was written down, by this router or others; None: nothing was.

        A frontend's later word is kept: that of its higher term, and of one term what was said
        here.
        """
        record = record or SpendRecord("")
        frontends = dict(record.frontends)
        for frontend in self._unwritten & self._gone.keys():
            mine, theirs = self._gone[frontend], frontends.get(frontend)
            if theirs is None or mine.term >= theirs.term:
                frontends[frontend] = mine
        for frontend, holder in list(self._holders.items()):
            theirs = frontends.pop(frontend, None)
            if theirs is not None and theirs.term > holder.term:
                self._waiting.pop(frontend, None)
                del self._holders[frontend]
                frontends[frontend] = theirs
        self._gone = frontends
        self._folded_charged = record.folded_charged
        self._folded_settled = record.folded_settled
        self.alerts = tuple(dict.fromkeys((*record.alerts, *self.alerts)))
        self._charged = (
            self._folded_charged
            + sum(one.charged for one in self._gone.values())
            + sum(one.charged for one in self._holders.values())
        )
        self.loaded = self.dirty = True

    def adds_to(self, record: SpendRecord) -> bool:
        """Return whether something is not written yet, and not in a record of another router."""
        charges = {**self._gone, **{name: one.charge() for name, one in self._holders.items()}}
        for name in self._unwritten & charges.keys():
            theirs = record.frontends.get(name)
            mine = charges[name]
            if theirs is None or theirs.term < mine.term:
                return True
            if theirs.term == mine.term and theirs.charged != mine.charged:
                return True
        return False

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
        self._fold(alive)
        frontends = {name: holder.charge() for name, holder in self._holders.items()}
        return SpendRecord(
            router,
            {**self._gone, **frontends},
            self._folded_charged,
            self._folded_settled,
            self.alerts,
        )

    def written(self, record: SpendRecord) -> None:
        """Note that a record was written, as `record` returned it."""
        self._claimed, self.alerts = True, record.alerts
        frontends = {name: holder.charge() for name, holder in self._holders.items()}
        now = {**self._gone, **frontends}
        self._unwritten = {
            name for name in self._unwritten if now.get(name) != record.frontends.get(name)
        }
        self.dirty = bool(self._unwritten)

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
        ahead = free // (_LEFT_PARTS * max(1, len(self._holders)))
        return min(ahead, self.limit.amount // _CHUNK_PARTS)

    def _may_change(self, asker: str, waited: float) -> bool:
        """Return whether more may soon be known or returned."""
        if not (self.loaded and self.reported):
            return waited < UNKNOWN_SECONDS
        if waited >= WAIT_SECONDS:
            return False
        return any(one.keeps for name, one in self._holders.items() if name != asker)

    def _begin(self, frontend: str, ask: Ask) -> None:
        before = self._holders.pop(frontend, None)
        gone = self._gone.pop(frontend, None)
        was = before.charged if before is not None else gone.charged if gone is not None else 0
        self._waiting.pop(frontend, None)
        self._holders[frontend] = _Holder(ask.term, ask.base)
        self._charged += ask.base - was
        self._changed(frontend)

    def _take_in(self, frontend: str, holder: _Holder, ask: Ask) -> None:
        if ask.returned > holder.returned:
            self._charged -= ask.returned - holder.returned
            holder.returned = ask.returned
            self._changed(frontend)
        if ask.settled > holder.settled:
            holder.settled = ask.settled
            self._changed(frontend)
        holder.held = max(0, ask.granted - ask.spent)
        holder.keeps = ask.keeps

    def _grant(self, frontend: str, holder: _Holder, units: int) -> None:
        if not self.loaded:
            self._lent += units
        holder.granted += units
        self._charged += units
        self._changed(frontend)

    def _grant_ahead(self, frontend: str, holder: _Holder) -> None:
        ahead = min(self._chunk - holder.held, self._lendable)
        if ahead > 0:
            self._grant(frontend, holder, ahead)

    def _recall(self) -> Iterator[tuple[str, Answer]]:
        """Yield to every frontend that keeps units ahead of need that it may not any more."""
        for name, holder in self._holders.items():
            if holder.told_keeps and name not in self._waiting:
                yield name, self._reply(holder)

    def _reply(self, holder: _Holder, wait: float = 0.0) -> Answer:
        holder.told_keeps = self._chunk
        if self.loaded and self.reported and self._deposed_until is None:
            left = max(0, self.free)
            reserved = sum(one.charged - one.settled for one in self._holders.values())
            reserved = max(0, reserved - holder.held)  # it counts that itself
        else:  # what there is will be known soon
            left, reserved = self._lendable, self.limit.amount
        return Answer(
            self.limit.id,
            holder.term,
            holder.granted,
            holder.told_keeps,
            left,
            wait,
            reserved=reserved,
        )

    def _changed(self, frontend: str) -> None:
        self._unwritten.add(frontend)
        self.dirty = True
        holder = self._holders.get(frontend)
        if holder is not None:
            holder.at_seconds = int(self.wall_seconds)

    def _fold(self, alive: Collection[str]) -> None:
        """Add up what frontends were charged that are long gone."""
        gone = [name for name in self._gone.keys() - self._unwritten if name not in alive]
        many = len(self._gone) + len(self._holders) - MAX_FRONTENDS
        gone.sort(key=lambda name: self._gone[name].at_seconds)
        for number, name in enumerate(gone):
            one = self._gone[name]
            if number < many or self.wall_seconds - one.at_seconds >= FOLD_SECONDS:
                del self._gone[name]
                self._folded_charged += one.charged
                self._folded_settled += one.settled
