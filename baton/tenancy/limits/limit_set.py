"""The limits that a key's requests must pass: those of the key, its project and its tenant."""

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
"""Retry delay if it is unknown when a slot will be free."""


@dataclass(frozen=True, slots=True)
class LimitRefusal:
    """The limit that a request exceeds now."""

    limit: Limit
    retry_after: float | None
    """Seconds after which it may fit; None: never, it exceeds the limit itself."""
    cost: int
    """Units that the request needs."""

    @property
    def sentence(self) -> str:
        """The message for the caller."""
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
    """Values of `x-ratelimit-*` for one measure: of the limit with the least remaining."""

    limit: int
    remaining: int
    reset_seconds: float
    """Seconds until all of it is available again."""


class Shares(Protocol):
    """The owner of the shares: `Limiter`."""

    @property
    def alone(self) -> bool:
        """Whether no router is alive."""

    def refill(self, shares: Sequence[LimitShare | BudgetShare], now: float) -> None:
        """Add accrued units to shares without an owner."""

    def check_owner(self, share: LimitShare | BudgetShare, now: float) -> None:
        """Begin a term if another router owns the limit now."""

    def ask(self, share: LimitShare | BudgetShare) -> None:
        """Send the share's message with the next batch."""

    def tell(self, share: LimitShare | BudgetShare) -> None:
        """Send the share's message shortly."""


class CostHold:
    """A request's maximum cost, held in the budgets of its tenant, its project and its key.

    They are taken in this order, each after the previous one succeeded: so when requests compete
    for the end of several budgets, one gets all it needs instead of each a useless part.
    """

    __slots__ = ("_budgets", "_limiter", "_taken", "cost")

    def __init__(self, limiter: Shares, budgets: Sequence[BudgetShare], cost: int) -> None:
        self._limiter = limiter
        self._budgets = budgets
        self._taken = 0
        self.cost = cost
        """The most that the request may cost, in nano-dollars."""

    def take(self, now: float) -> "LimitRefusal | bool":
        """Take the remaining budgets; return whether all are taken, or which one rejects.

        After False the owners' replies may change the result. `settle` must be called in any case.
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
        """End the hold: the request cost `cost`. Idempotent: the first call counts."""
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
    """What a request took of all limits. `settle` it when the request ends, however it ends."""

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
        """Reserved tokens: its prompt, and its maximum output."""
        self.hold = hold
        """Hold on budgets; None: it has none."""

    def return_requests(self) -> None:
        """Return several requests that were counted: none of them was started. Only once."""
        requests, self._requests = self._requests, []
        for share, term, count in requests:
            share.refund(count, term)

    def settle(self, used: int, cost: int = 0) -> None:
        """Return what was not used. Idempotent: the first call counts.

        Args:
            used: tokens of its prompt and outputs; capped at the reserved tokens.
            cost: in nano-dollars.
        """
        limits, self._limits = self._limits, None
        if limits is not None:
            limits.settle(self._terms, max(0, self.tokens - used))
            if self.hold is not None:
                self.hold.settle(cost)


class LimitSet:
    """Reserves from several limits atomically: from all of them or none. Created by a `Limiter`."""

    def __init__(self, limiter: Shares, shares: Sequence[LimitShare | BudgetShare]) -> None:
        self._limiter = limiter
        self.shares = tuple(share for share in shares if isinstance(share, LimitShare))
        self.requests = self._of(Measure.REQUESTS)
        self.tokens = self._of(Measure.TOKENS)
        self.at_once = self._of(Measure.AT_ONCE)
        budgets = [share for share in shares if isinstance(share, BudgetShare)]
        budgets.sort(key=lambda share: _COST_ORDER.index(share.limit.id.subject))
        self.budgets = tuple(budgets)
        """Budgets to which the cost of requests is charged, in this order."""
        self.budget = min(
            (share.limit for share in budgets if share.limit.amount < NO_BUDGET),
            key=lambda limit: limit.amount,
            default=None,
        )
        """The smallest of its budgets; None: spending is not limited."""
        self._once = self.requests + self.at_once

    def hold(self, cost: int) -> CostHold | None:
        """Return a hold on the budgets; None: there are none, or the request costs nothing."""
        return CostHold(self._limiter, self.budgets, cost) if cost and self.budgets else None

    def reserve(
        self, tokens: int, now: float, hold: CostHold | None = None, requests: int = 1
    ) -> LimitReservation | LimitRefusal | None:
        """Take a request's part of every limit.

        Args:
            tokens: its prompt, and its maximum output.
            now: a monotonic clock, in seconds.
            hold: hold on its budgets, the same at each attempt; if no reservation results, the
                caller settles it.
            requests: how many are counted; if several form one client request, the first counts
                all, and the others none.

        Returns:
            None: routers have been or must be asked; retry once their replies have arrived.
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
        """End a request: its slots are free, and `unused` tokens of those terms are returned."""
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
        """Return what remains, by measure, of requests and tokens per minute."""
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
        """Send the returns of `LimitReservation.return_requests` shortly."""
        for share in self.requests:
            if share.changed:
                self._limiter.tell(share)

    def _check_several(self, requests: int) -> LimitRefusal | None:
        """Reject several requests of one client request that can never run together."""
        for share in self.at_once:
            if requests > share.limit.burst:
                return LimitRefusal(share.limit, None, requests)
        return None

    def _lack(self, tokens: int, now: float, requests: int) -> LimitRefusal | None:
        """Reject, or ask all owners of limits that the request lacks something of, in parallel."""
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
