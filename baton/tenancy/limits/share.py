"""A frontend's share of one limit: units granted and not used."""

import math

from baton.tenancy.limits.alone import LocalPart
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.recent import RecentGrants
from baton.tenancy.limits.spec import Limit, Measure
from baton.tenancy.limits.term import Term

IDLE_SECONDS = 1.0
"""Unused units are returned after this, and use is reported if there is no other message."""


class LimitShare:
    """The part of a limit that a frontend may use. Owned by a `Limiter`; requests take from
    `available`.

    Its life is a sequence of terms, one per owner: units taken in one term are not returned in
    another.
    """

    __slots__ = (
        "__weakref__",
        "_part",
        "_recent",
        "_seen",
        "_seen_at",
        "_term",
        "available",
        "digest",
        "epoch",
        "in_use",
        "limit",
        "low",
        "owner",
        "places",
    )

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.digest = limit.id.digest()
        self.places = limit.id.measure is Measure.AT_ONCE
        """Whether units return as requests end."""
        self.owner = ""
        """The router; empty: there is none, or none was asked yet."""
        self.epoch = 0
        """Epoch of the routers among which `owner` was chosen."""
        self.available = 0
        """Units that requests may take."""
        self.in_use = 0
        """Running requests, for a concurrency limit; else 0."""
        self.low = -1
        """Below this many available units it asks ahead; -1: never."""
        self._term = Term()
        self._part: LocalPart | None = None
        self._recent = RecentGrants()
        """Recent grants, for per-minute limits."""
        self._seen_at = math.inf
        self._seen = 0

    @property
    def term(self) -> int:
        """Number of the term; 0: none has begun."""
        return self._term.number

    @property
    def idle(self) -> bool:
        """Whether there is nothing to return, void or report, and the owner knows that."""
        told = not (self.owner and self._term.unreported(self._kept))
        return told and not (self.available or self.in_use or self._term.open)

    @property
    def changed(self) -> bool:
        """Whether to report to the owner without being asked."""
        return self._term.changed

    @property
    def _kept(self) -> int:
        """Units of this term that this frontend holds."""
        return self.in_use + self.available

    @property
    def has_message(self) -> bool:
        """Whether there is a message for the owner."""
        return bool(self.owner) and self._term.has_message

    def recent(self, now: float) -> int:
        """Return the units granted and not returned, within the time in which the bucket fills."""
        return 0 if self.places else self._recent.total(self.limit, now)

    def begin_term(self, number: int, owner: str, now: float, *, keep: bool) -> None:
        """Begin with an owner.

        Args:
            number: higher than every one before.
            owner: the router; empty: there is none, and this frontend uses its part of the limit.
            now: a monotonic clock, in seconds.
            keep: whether available units may still be used if there is no owner; a new owner grants
                them again.
        """
        self.owner = owner
        self._part = None if owner else LocalPart(now)
        self._term = Term(number, self.in_use, self.in_use)
        self.low = -1
        if owner or self.places or not keep:
            self._recent.take_back(self.available)
            self.available = 0
        self._term.changed = bool(owner and (self.in_use or self.recent(now)))

    def begin_alone(self, now: float) -> None:
        """Without an owner: start with this frontend's part, less recent grants."""
        if self._part is not None and not self.places:
            self._part.begin_with(max(0, self.recent(now) - self.available))

    def lack(self, cost: int, now: float) -> float:
        """Return when to retry a request that needs `cost` units and finds fewer.

        Returns:
            Seconds; 0: asking the owner is useful, or it was asked; infinity: the limit never
            allows such a request.
        """
        if cost > self.limit.burst:
            return math.inf
        need = cost - self.available
        if self._part is not None:
            return self._part.seconds(need)
        return self._term.seconds_to_wait(need, self.limit, now)

    def want(self, cost: int) -> None:
        """Ask for the units that a request lacks, with the next message."""
        self._term.want(cost - self.available)

    def want_ahead(self, now: float) -> bool:
        """Ask for a chunk with the next message; return False if that is useless now."""
        return self._term.want_ahead(now)

    def ask(self, now: float) -> Ask:
        """Return the message to the owner."""
        ahead, recent = not self.places, self.recent(now)
        return self._term.ask(self.limit, self._kept, now, ahead=ahead, recent=recent)

    def receive(self, answer: LimitGrant, now: float) -> None:
        """Handle a reply of this term."""
        units = self._term.receive(answer, now)
        self.available += units
        self._count(units, now)
        self.low = -1 if self.places or not answer.chunk else answer.chunk // 2

    def end_use(self) -> None:
        """Record that a request ended, and return its slot if enough are kept."""
        self.in_use -= 1
        self.available += 1
        if self._part is not None:
            self.available = max(0, min(self.available, self._part.most - self.in_use))
        elif self.available > self._term.chunk:
            self._return(self.available - self._term.chunk)

    def refund(self, units: int, term: int) -> None:
        """Return units that a request of that term took and did not use."""
        if term != self.term:
            return
        if self._part is not None:
            back = max(0, min(units, self._part.most - self.available))
            self.available += back
            self._recent.take_back(back)
        elif self._term.answered:
            self._term.returned += units
            self._term.changed = True
            self._recent.take_back(units)

    def tick(self, now: float) -> None:
        """Drop units that have become void, and return those unused for a while."""
        may_return = self._term.answered and not self._term.waits(now)
        if self._term.overdue(now):
            self._term.say_again()
        if self.owner:
            self._term.report_if_quiet(self._kept, IDLE_SECONDS, now)
        if self._seen != self.available:
            self._seen, self._seen_at = self.available, now
        elif self.available and may_return and now - self._seen_at >= IDLE_SECONDS:
            self._return(self.available)

    def refill(self, frontends: int, now: float) -> None:
        """Without an owner: add what has accrued of this frontend's part of the limit."""
        if self._part is None:
            return
        units = self._part.take(self.limit, frontends, self.available, now)
        if self.places:
            self.available = max(self.available, self._part.most - self.in_use)
        else:
            more = min(units, self._part.most - self.available)
            self.available += more
            self._count(more, now)

    def say_for_roll(self) -> None:
        """Report running requests and recent grants to the owner, if there may be any."""
        if self.in_use or self._recent:
            self._term.changed = True

    def say_again(self) -> None:
        """Send the last report again, which the owner may not have received, and request a
        reply."""
        self._term.say_again()

    def remaining(self, now: float) -> int:
        """Return approximately how many units of the limit remain, here and in the bucket."""
        left = self.available + self._term.in_bucket(self.limit, now)
        return max(0, min(self.limit.burst, left))

    def _count(self, units: int, now: float) -> None:
        if not self.places:
            self._recent.add(units, self.limit, now)

    def _return(self, units: int) -> None:
        self.available -= units
        self._recent.take_back(units)
        self._term.returned += units
        self._term.changed = True
