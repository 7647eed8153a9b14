"""A frontend's share of one budget: units granted, reserved by running requests, and spent."""

import math
from collections.abc import Hashable

from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import Limit
from baton.tenancy.limits.term import ANSWER_SECONDS

IDLE_SECONDS = 1.0
"""Unused units are returned after this, and spending is reported if there is no other message."""
RETRY_SECONDS = 1.0
"""Retry delay if running requests may return units."""


class BudgetShare:
    """The part of a budget that a frontend may spend. Owned by a `Limiter`, which keeps it for the
    month.

    Its charge is always `available + reserved + settled`. A new owner receives that sum as the base
    of its term, so that nothing is lost with the previous owner.
    """

    __slots__ = (
        "__weakref__",
        "_answered",
        "_asked_at",
        "_asking",
        "_base",
        "_chunk",
        "_elsewhere",
        "_granted",
        "_left",
        "_refuse_until",
        "_returned",
        "_seen",
        "_seen_at",
        "_term",
        "_told",
        "_told_at",
        "_waiting",
        "_wants_ahead",
        "available",
        "changed",
        "digest",
        "epoch",
        "in_use",
        "limit",
        "low",
        "owner",
        "reserved",
        "settled",
    )

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.digest = limit.id.digest()
        self.owner = ""
        """The router; empty: there is none, or none was asked yet."""
        self.epoch = 0
        """Epoch of the routers among which `owner` was chosen."""
        self.in_use = 0
        self.available = 0
        """Units that requests may reserve."""
        self.reserved = 0
        """Units reserved by running requests."""
        self.settled = 0
        """Cost of ended requests."""
        self.low = -1
        """Below this many available units it asks ahead; -1: never."""
        self.changed = False
        """Whether to report to the owner without being asked."""
        self._term = self._base = self._granted = self._returned = 0
        self._chunk = self._left = self._elsewhere = 0
        self._answered = self._asking = self._wants_ahead = False
        self._asked_at = self._told_at = self._refuse_until = -math.inf
        self._told = (0, 0)
        self._seen, self._seen_at = 0, math.inf
        self._waiting: dict[Hashable, int] = {}
        """Units that each waiting request needs, oldest first."""

    @property
    def term(self) -> int:
        """Number of the term; 0: none has begun."""
        return self._term

    @property
    def charged(self) -> int:
        """Units granted to this frontend and not returned."""
        return self.available + self.reserved + self.settled

    @property
    def has_charge(self) -> bool:
        """Whether a router, or the record, may hold a charge.

        Also after all was returned, or if nothing was ever granted: the report of the return, or
        the grant, may have been lost on the way. A new owner is told of a charge of 0 then.
        """
        return self.charged > 0 or self._asked_at > -math.inf

    @property
    def has_message(self) -> bool:
        """Whether there is a message for the owner."""
        return bool(self.owner) and (self.changed or self._wants_ahead)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to return or to report, and the owner knows that."""
        told = not self.owner or self._told == (self.available, self.settled)
        return told and not (self.available or self.reserved or self.changed or self._asking)

    def begin_term(self, number: int, owner: str, now: float, *, keep: bool) -> None:  # noqa: ARG002  # a share like others
        """Begin a term with an owner, which receives the total charge; empty: there is none."""
        self.owner = owner
        self._term = number
        self._base = self._granted = self.charged
        self._returned = self._chunk = self._left = self._elsewhere = 0
        self._answered = self._asking = self._wants_ahead = False
        self._refuse_until = -math.inf
        self.low = -1
        self.changed = bool(owner and (self._waiting or self.has_charge))

    # Requests.

    def take(self, waiter: Hashable, cost: int, now: float) -> None:
        """Reserve units for a request, which stops waiting; `available` must suffice."""
        self._waiting.pop(waiter, None)
        self.available -= cost
        self.reserved += cost
        if self.available < self.low and not self._asking and now >= self._refuse_until:
            self._wants_ahead = True

    def wait(self, waiter: Hashable, cost: int) -> None:
        """Queue a request until it takes units or leaves; the owner is asked for what it lacks."""
        if waiter not in self._waiting:
            self._waiting[waiter] = cost
            self.changed = True

    def leave(self, waiter: Hashable) -> None:
        """Remove a request from the queue."""
        if self._waiting.pop(waiter, None) is not None and self._surplus:
            self.changed = True

    def refusal(self, cost: int, now: float) -> float | None:
        """Return when to retry a request that lacks units.

        Returns:
            Seconds; infinity: not in this month; None: the owner was asked, and its reply decides.
        """
        if cost > self.limit.amount:
            return math.inf
        if not self.owner:
            return RETRY_SECONDS
        if now >= self._refuse_until or cost <= self.available + self._left:
            return None
        within = cost <= self.available + self._left + self._elsewhere
        return RETRY_SECONDS if within else math.inf

    def settle(self, reserved: int, cost: int) -> None:
        """End a request that reserved units: it cost `cost`, and the rest becomes available."""
        self.reserved -= reserved
        self.settled += cost
        self.available += reserved - cost
        if self._surplus:
            self.changed = True

    # Messages.

    def ask(self, now: float) -> Ask:
        """Return the message to the owner, which also returns unneeded units."""
        surplus = self._surplus
        self.available -= surplus
        self._returned += surplus
        need = want = 0
        if self._waiting:
            need = max(0, min(self._waiting.values()) - self.available)
            want = max(need, sum(self._waiting.values()) - self.available)
        ask = Ask(
            self.limit,
            self._term,
            self._base,
            self._granted,
            self._granted - self.available,
            self._returned,
            need,
            want if need else 0,
            self._wants_ahead or bool(need),
            True,
            self.settled,
            self._chunk,
        )
        self._told, self._told_at = (self.available, self.settled), now
        self._asking, self._asked_at = True, now
        self.changed = self._wants_ahead = False
        return ask

    def receive(self, answer: LimitGrant, now: float) -> None:
        """Handle a reply of this term."""
        units = max(0, answer.granted - self._granted)
        self._granted += units
        self.available += units
        self._answered = True
        self._asking = False
        if self._chunk and not answer.chunk:
            self.changed = True  # the owner waits for confirmation that nothing is kept
        self._chunk = answer.chunk
        self.low = answer.chunk // 2 or -1
        self._left, self._elsewhere = answer.left, answer.reserved
        self._refuse_until = now + answer.wait if answer.wait else -math.inf
        if self._surplus:
            self.changed = True

    def say_again(self) -> None:
        """Send the last report again, which the owner may not have received."""
        self._asking = False
        self.changed = True

    def tick(self, now: float) -> None:
        """Return units unused for a while, and report spending."""
        if not self.owner:
            return
        if self._asking and now - self._asked_at >= ANSWER_SECONDS:
            self.say_again()
        elif self._told != (self.available, self.settled) and now - self._told_at >= IDLE_SECONDS:
            self.changed = True
        if self._seen != self.available:
            self._seen, self._seen_at = self.available, now
        elif now - self._seen_at >= IDLE_SECONDS and self._answered and not self._waiting:
            self.give_back()

    def give_back(self) -> None:
        """Return all unreserved units, with the next message."""
        if self.owner and self.available:
            self._returned += self.available
            self.available = 0
            self.changed = True

    def refill(self, frontends: int, now: float) -> None:
        """Do nothing: without an owner, nothing accrues."""

    @property
    def _surplus(self) -> int:
        """Return the units to return: twice the chunk may stay, so that not every request returns
        some."""
        if self._waiting or not self._answered or self.available <= 2 * self._chunk:
            return 0
        return self.available - self._chunk
