"""The limits that a key's requests must pass: its own, its project's and its tenant's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from baton.request.prices import dollars
from baton.tenancy.limits.budget.month import name as month_name
from baton.tenancy.limits.budget.share import BudgetShare
from baton.tenancy.limits.share import LimitShare
from baton.tenancy.limits.spec import NO_BUDGET, Limit, Measure, Subject

_RUNNING = "running requests reserve the rest of the budget, or spending is unknown; retry later"
_COST_ORDER = (Subject.TENANT, Subject.PROJECT, Subject.KEY)
_RETRY_SECONDS = 1.0
"""Where nothing says when a place will be free."""


@dataclass(frozen=True, slots=True)
class LimitRefusal:
    """Which limit a request does not fit in now."""

    limit: Limit
    retry_after: float | None
    """Seconds after which it may; None: never, it is larger than the limit allows."""
    cost: int
    """Units that it needs."""

    @property
    def sentence(self) -> str:
        """What a caller is told."""
        limit = self.limit
        measure, month = limit.id.measure, limit.id.month
        if measure is Measure.COST:
            return (
                f"{limit.whose} has a budget of {dollars(limit.amount)} dollars for "
                f"{month_name(month)}, and this request may cost {dollars(self.cost)} dollars: "
                + ("the rest is too small" if self.retry_after is None else _RUNNING)
            )
        if measure is Measure.AT_ONCE:
            allowed = f"{limit.whose} is limited to {limit.amount} concurrent requests"
        else:
            allowed = f"{limit.whose} is limited to {limit.amount} {measure} per minute"
        if self.retry_after is None:
            return f"{allowed}, and this request needs {self.cost}: shorten the request"
        return allowed


@dataclass(frozen=True, slots=True)
class Headroom:
    """What `x-ratelimit-*` say of one measure: of the limit with the least left."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until all of it is there again."""


class Shares(Protocol):
    """What holds the shares: `Limiter`."""

    @property
    def alone(self) -> bool:
        """Whether there is no router."""

    def refill(self, shares: Sequence[LimitShare | BudgetShare], now: float) -> None:
        """Add what came to shares without an owner."""

    def check_owner(self, share: LimitShare | BudgetShare, now: float) -> None:
        """Begin a term if another router owns the limit now."""

    def ask(self, share: LimitShare | BudgetShare) -> None:
        """Send the share's message with the next ones."""

    def tell(self, share: LimitShare | BudgetShare) -> None:
        """Send the share's message within a moment."""


class CostHold:
    """A request's worst case, held in the budgets of its tenant, its project and its key.

    They are taken in this order, each once the one before was had: so of requests that meet at the
    end of several budgets one gets what there is, and not each a part that is of no use.
    """

    __slots__ = ("_budgets", "_limiter", "_taken", "cost")

    def __init__(self, limiter: Shares, budgets: Sequence[BudgetShare], cost: int) -> None:
        self._limiter = limiter
        self._budgets = budgets
        self._taken = 0
        self.cost = cost
        """The most that the request may cost, in nano-dollars."""

    def take(self, now: float) -> "LimitRefusal | bool":
        """Take the budgets that are not taken yet; return whether all are, or which one refuses.

        After False the owners' answers may change it. `settle` ends this in any case.
        """
        cost, limiter = self.cost, self._limiter
        while self._taken < len(self._budgets):
            share = self._budgets[self._taken]
            if share.available < cost:
                limiter.check_owner(share, now)
                retry_after = share.refusal(cost, now)
                if retry_after is not None:
                    return LimitRefusal(
                        share.limit, None if math.isinf(retry_after) else retry_after, cost
                    )
                share.wait(self, cost)
                limiter.ask(share)
                return False
            share.take(self, cost, now)
            if share.has_message:
                limiter.ask(share)
            self._taken += 1
        return True

    def settle(self, cost: int) -> None:
        """End it: the request cost so much. Idempotent: the first call counts."""
        budgets, self._budgets = self._budgets, ()
        for number, share in enumerate(budgets):
            if number < self._taken:
                share.settle(self.cost, cost)
            else:
                share.leave(self)
            if share.changed:
                self._limiter.ask(share)
            else:
                self._limiter.tell(share)
        self._taken = 0


class LimitReservation:
    """What a request took of all limits. `settle` it when it ends, however that is."""

    __slots__ = ("_limits", "_requests", "_terms", "hold", "tokens")

    def __init__(
        self, limits: "LimitSet", tokens: int, hold: CostHold | None, requests: int = 1
    ) -> None:
        self._limits: LimitSet | None = limits
        self._terms = [share.term for share in limits.tokens]
        self._requests = (
            [(share, share.term, requests) for share in limits.requests] if requests > 1 else []
        )
        self.tokens = tokens
        """Reserved: its prompt, and the most that it may write."""
        self.hold = hold
        """Of budgets; None: it has none."""

    def return_requests(self) -> None:
        """Give back several requests that were counted: none of them was begun. Only once."""
        requests, self._requests = self._requests, []
        for share, term, count in requests:
            share.refund(count, term)

    def settle(self, used: int, cost: int = 0) -> None:
        """Give back what was not used. Idempotent: the first call counts.

        Args:
            used: tokens of its prompt and outputs; more than were reserved count as those.
            cost: in nano-dollars.
        """
        limits, self._limits = self._limits, None
        if limits is not None:
            limits.settle(self._terms, max(0, self.tokens - used))
            if self.hold is not None:
                self.hold.settle(cost)


class LimitSet:
    """Reserves of several limits at once: of all of them or of none. Made by a `Limiter`."""

    def __init__(self, limiter: Shares, shares: Sequence[LimitShare | BudgetShare]) -> None:
        self._limiter = limiter
        self.shares = tuple(share for share in shares if isinstance(share, LimitShare))
        self.requests = self._of(Measure.REQUESTS)
        self.tokens = self._of(Measure.TOKENS)
        self.at_once = self._of(Measure.AT_ONCE)
        budgets = [share for share in shares if isinstance(share, BudgetShare)]
        budgets.sort(key=lambda share: _COST_ORDER.index(share.limit.id.subject))
        self.budgets = tuple(budgets)
        """What its requests cost is counted in these, in this order."""
        self.budget = min(
            (share.limit for share in budgets if share.limit.amount < NO_BUDGET),
            key=lambda limit: limit.amount,
            default=None,
        )
        """The smallest of its budgets; None: nothing limits what it may spend."""
        self._once = self.requests + self.at_once

    def hold(self, cost: int) -> CostHold | None:
        """Return what a request holds of the budgets; None: there are none, or it costs nothing."""
        return CostHold(self._limiter, self.budgets, cost) if cost and self.budgets else None

    def reserve(
        self, tokens: int, now: float, hold: CostHold | None = None, requests: int = 1
    ) -> LimitReservation | LimitRefusal | None:
        """Take a request's part of every limit.

        Args:
            tokens: its prompt, and the most that it may write.
            now: a monotonic clock, in seconds.
            hold: of its budgets, the same each time; where no reservation comes of it, the caller
                settles it.
            requests: how many are counted; of several that are one for the client the first counts
                all, and the others none.

        Returns:
            None: routers are asked, or are to be; try again once their answers have come.
        """
        if self._limiter.alone:
            self._limiter.refill(self.shares, now)
        if requests != 1:
            refusal = self._check_several(requests)
            if refusal is not None:
                return refusal
        for share in self._once if requests else self.at_once:
            if share.available < 1 or (share.available < requests and not share.places):
                return self._lack(tokens, now, requests)
        for share in self.tokens:
            if share.available < tokens:
                return self._lack(tokens, now, requests)
        if hold is not None:
            held = hold.take(now)
            if held is not True:
                return held or None
        for share in self.requests:
            share.available -= requests
            if share.available < share.low and share.want_ahead(now):
                self._limiter.ask(share)
        for share in self.tokens:
            share.available -= tokens
            if share.available < share.low and share.want_ahead(now):
                self._limiter.ask(share)
        for share in self.at_once:
            share.available -= 1
            share.in_use += 1
        return LimitReservation(self, tokens, hold, requests)

    def settle(self, terms: Sequence[int], unused: int) -> None:
        """End a request: its places are free, and `unused` tokens of those terms go back."""
        for share in self.at_once:
            share.end_use()
            if share.changed:
                self._limiter.ask(share)
        if unused:
            for share, term in zip(self.tokens, terms, strict=True):
                share.refund(unused, term)
                if share.changed:
                    self._limiter.tell(share)

    def headroom(self, now: float) -> dict[Measure, Headroom]:
        """Return what is left, by measure, of requests and tokens per minute."""
        found: dict[Measure, Headroom] = {}
        for share in self.requests + self.tokens:
            limit, remaining = share.limit, share.remaining(now)
            before = found.get(limit.id.measure)
            if before is None or remaining < before.remaining:
                reset = (limit.burst - remaining) * 60 / limit.per_minute
                found[limit.id.measure] = Headroom(limit.amount, remaining, reset)
        return found

    def _of(self, measure: Measure) -> tuple[LimitShare, ...]:
        return tuple(share for share in self.shares if share.limit.id.measure is measure)

    def tell_requests(self) -> None:
        """Send what `LimitReservation.return_requests` gave back within a moment."""
        for share in self.requests:
            if share.changed:
                self._limiter.tell(share)

    def _check_several(self, requests: int) -> LimitRefusal | None:
        """Refuse several requests that are one for the client and can never run together."""
        for share in self.at_once:
            if requests > share.limit.burst:
                return LimitRefusal(share.limit, None, requests)
        return None

    def _lack(self, tokens: int, now: float, requests: int) -> LimitRefusal | None:
        """Refuse, or have all owners asked at once of whose limits the request lacks something."""
        lacking: list[tuple[LimitShare, int]] = []
        refusal: LimitRefusal | None = None
        for share in self.shares:
            cost = 1
            if share.limit.id.measure is Measure.TOKENS:
                cost = tokens
            elif share.limit.id.measure is Measure.REQUESTS:
                cost = requests
            if share.available >= cost:
                continue
            self._limiter.check_owner(share, now)
            seconds = share.lack(cost, now)
            if seconds:
                refusal = _longer(refusal, share.limit, seconds, cost)
            else:
                lacking.append((share, cost))
        if refusal is not None:
            return refusal
        for share, cost in lacking:
            share.want(cost)
            self._limiter.ask(share)
        return None


def _longer(refusal: LimitRefusal | None, limit: Limit, seconds: float, cost: int) -> LimitRefusal:
    retry_after = None if math.isinf(seconds) else seconds
    if retry_after is not None and limit.id.measure is Measure.AT_ONCE:
        retry_after = max(retry_after, _RETRY_SECONDS)
    if refusal is None or retry_after is None:
        return LimitRefusal(limit, retry_after, cost)
    if refusal.retry_after is None or refusal.retry_after >= retry_after:
        return refusal
    return LimitRefusal(limit, retry_after, cost)
