"""A frontend's shares of all limits: which routers own them, and the messages to them."""

from collections.abc import Collection, Iterable, Sequence
from weakref import WeakValueDictionary

from baton.cluster.rendezvous import choose
from baton.tenancy.limits.budget.roll_call import view_of
from baton.tenancy.limits.budget.share import BudgetShare
from baton.tenancy.limits.limit_set import LimitSet
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.share import LimitShare
from baton.tenancy.limits.spec import Limit, LimitId, Measure, SubjectLimits

AnyShare = LimitShare | BudgetShare


class Limiter:
    """Creates limit sets, and exchanges messages for their shares. One per frontend; on one event
    loop.

    Its driver calls `take_messages` at the end of each iteration of the loop and sends the result,
    `receive` with replies, `tick` every quarter of a second, and `observe` when routers or
    frontends appear or disappear. Shares live as long as a set that uses them; those of budgets to
    the end of their month, because their spending must be reported to every new owner.

    Args:
        month: the current one, as `month_of` counts; 0: budgets are not counted.
    """

    def __init__(self, month: int = 0) -> None:
        self.month = month
        """Set by the driver."""
        self._routers: frozenset[str] | None = None
        self._frontends = 1
        self._shares: WeakValueDictionary[LimitId, AnyShare] = WeakValueDictionary()
        self._budgets: dict[LimitId, BudgetShare] = {}
        self._active: dict[LimitId, AnyShare] = {}
        """Shares that hold units, or have something to report; they are never forgotten."""
        self._recent: dict[LimitId, LimitShare] = {}
        """Shares of per-minute limits with recent grants, which are reported to a new owner."""
        self._outgoing: dict[LimitId, AnyShare] = {}
        self._eras: dict[str, int] = {}
        """Last era received from each router, to be echoed."""
        self._roll_calls: set[str] = set()
        """Routers to inform that everything was reported."""
        self._terms = 0
        self._epoch = 1
        self._alone_since: float | None = None
        """None: there are routers, or none was ever known."""
        self.alone = True
        """Whether no router is alive."""

    @property
    def has_messages(self) -> bool:
        """Whether `take_messages` may return any."""
        return bool(self._outgoing or self._roll_calls)

    @property
    def view(self) -> bytes:
        """Identifies the routers that this frontend knows."""
        return view_of(self._routers or ())

    def observe(self, routers: Collection[str], frontends: int, now: float) -> None:
        """Update which routers are alive, and the number of frontends, including this one.

        Waiting requests should be retried after this: an owner that is gone does not reply.
        """
        self._frontends = max(1, frontends)
        if self._routers == frozenset(routers):
            return
        began, self._routers = bool(self._routers), frozenset(routers)
        self.alone = not routers
        self._epoch += 1
        self._alone_since = now if self.alone and began else None
        self._eras = {one: era for one, era in self._eras.items() if one in self._routers}
        known = self._active | self._outgoing | self._budgets | self._recent
        for share in list(known.values()):
            self.check_owner(share, now)
        for router in self._routers:
            self._call_roll(router)

    def limit_set(self, subjects: Iterable[SubjectLimits]) -> LimitSet:
        """Return the limits of a key, its project and its tenant, as in their current records."""
        limits = (limit for one in subjects for limit in one.limits(self.month))
        return LimitSet(self, [self._share(limit) for limit in limits])

    def take_messages(self, now: float) -> list[tuple[str, Ask]]:
        """Return the messages to send, with their routers."""
        shares, self._outgoing = self._outgoing, {}
        shares = {limit_id: share for limit_id, share in shares.items() if share.has_message}
        self._active.update(shares)
        return [(share.owner, share.ask(now)) for share in shares.values()]

    def take_roll_calls(self) -> dict[str, int]:
        """Return the routers to send `view` to, after all pending messages, and the era to send
        with it."""
        routers, self._roll_calls = self._roll_calls, set()
        return {router: self._eras.get(router, 0) for router in routers}

    def hear_era(self, router: str, era: int, now: float) -> None:
        """Restart all budgets of a router that requests it: earlier reports are void."""
        if self._routers is None or router not in self._routers or self._eras.get(router) == era:
            return
        self._eras[router] = era
        for share in self._budgets.values():
            if share.owner == router:
                self._begin(share, router, now, keep=True)
        self._call_roll(router)

    def receive(self, router: str, answer: LimitGrant, now: float) -> None:
        """Handle a router's reply; after one of an earlier term the router is sent the current
        one."""
        share = self._shares.get(answer.limit_id)
        if share is None:
            return
        self.check_owner(share, now)  # one that holds nothing learns of changes when it is used
        if share.owner != router:
            return
        if share.term != answer.term:
            share.say_again()
            self.ask(share)
            return
        if answer.restart:
            self._begin(share, router, now, keep=False)
            return
        share.receive(answer, now)
        self._active[share.limit.id] = share
        self._note_recent(share)

    def connected(self, router: str) -> None:
        """Send the last messages again: those in flight to a router may be lost."""
        for limit_id, share in self._active.items():
            if share.owner == router:
                share.say_again()
                self._outgoing[limit_id] = share
        self._call_roll(router)

    def give_back(self) -> None:
        """Return all unreserved money: this frontend stops."""
        for limit_id, share in self._budgets.items():
            share.give_back()
            if share.changed:
                self._outgoing[limit_id] = share

    @property
    def all_returned(self) -> bool:
        """Whether owners know of all returned money, and of all spending."""
        return all(share.idle or not share.owner for share in self._budgets.values())

    def tick(self, now: float) -> None:
        """Return unused units, and forget the shares that hold nothing."""
        for limit_id, budget in list(self._budgets.items()):
            if limit_id.month != self.month and budget.idle and limit_id not in self._active:
                del self._budgets[limit_id]
        for limit_id, recent in list(self._recent.items()):
            if not recent.recent(now):
                del self._recent[limit_id]
        for limit_id, share in list(self._active.items()):
            share.tick(now)
            if share.changed:
                self._outgoing[limit_id] = share
            elif share.idle:
                del self._active[limit_id]

    def refill(self, shares: Sequence[AnyShare], now: float) -> None:
        """Add units accrued to shares while no router is alive."""
        for share in shares:
            self.check_owner(share, now)
            share.refill(self._frontends, now)
            self._active[share.limit.id] = share
            self._note_recent(share)

    def check_owner(self, share: AnyShare, now: float) -> None:
        """Begin a term with the router that now owns a limit, if it has changed."""
        if share.epoch == self._epoch:
            return
        share.epoch = self._epoch
        owner = choose(share.digest, self._routers) if self._routers else ""
        if owner != share.owner or not share.term:
            self._begin(share, owner, now, keep=bool(share.owner))

    def ask(self, share: AnyShare) -> None:
        """Send the share's message with the next batch."""
        self._outgoing[share.limit.id] = share

    def tell(self, share: AnyShare) -> None:
        """Send the share's message with the next tick, or with an earlier request for units."""
        self._active[share.limit.id] = share

    def _share(self, limit: Limit) -> AnyShare:
        share = self._shares.get(limit.id)
        if share is None:
            if limit.id.measure is Measure.COST:
                share = self._budgets[limit.id] = BudgetShare(limit)
            else:
                share = LimitShare(limit)
            self._shares[limit.id] = share
        elif limit.version >= share.limit.version:
            share.limit = limit
        return share

    def _begin(self, share: AnyShare, owner: str, now: float, *, keep: bool) -> None:
        self._terms += 1
        if not owner and self._alone_since is not None:
            now = self._alone_since  # its part accrues from then on, whenever it is first used
        share.begin_term(self._terms, owner, now, keep=keep)
        if self._alone_since is not None and self._frontends == 1 and isinstance(share, LimitShare):
            share.begin_alone(now)  # with several frontends, none knows the grants of the others
        if share.changed:
            self._outgoing[share.limit.id] = share

    def _note_recent(self, share: AnyShare) -> None:
        if isinstance(share, LimitShare) and not share.places:
            self._recent[share.limit.id] = share

    def _call_roll(self, router: str) -> None:
        """Report all budgets of a router, running requests and recent grants, and that this is
        everything."""
        for limit_id, share in (self._active | self._recent).items():
            if share.owner == router and isinstance(share, LimitShare):
                share.say_for_roll()
                if share.has_message:
                    self._outgoing[limit_id] = share
        for limit_id, share in self._budgets.items():
            if share.owner == router and share.has_charge:
                share.say_again()
                self._outgoing[limit_id] = share
        self._roll_calls.add(router)
