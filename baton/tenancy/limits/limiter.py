"""A frontend's shares of all limits: which routers own them, and what is to be said to those."""

from collections.abc import Collection, Iterable, Sequence
from weakref import WeakValueDictionary

from baton.rendezvous import choose
from baton.tenancy.limits.limit_set import LimitSet
from baton.tenancy.limits.messages import Answer, Ask
from baton.tenancy.limits.share import Share
from baton.tenancy.limits.spec import Limit, LimitId, SubjectLimits


class Limiter:
    """Makes sets of limits, and speaks for their shares. One per frontend; on one event loop.

    Whoever drives it calls `take_messages` at the end of each turn of the loop and sends what it
    returns, `receive` with what comes back, `tick` every quarter of a second, and `observe` when
    routers or frontends come or go. Shares live as long as a set that has them.
    """

    def __init__(self) -> None:
        self._routers: frozenset[str] | None = None
        self._frontends = 1
        self._shares: WeakValueDictionary[LimitId, Share] = WeakValueDictionary()
        self._active: dict[LimitId, Share] = {}
        """Those that hold something, or have something to say; they are never forgotten."""
        self._outgoing: dict[LimitId, Share] = {}
        self._terms = 0
        self._epoch = 1
        self._alone_since: float | None = None
        self.alone = True
        """Whether no router is alive."""

    @property
    def has_messages(self) -> bool:
        """Whether `take_messages` may return some."""
        return bool(self._outgoing)

    def observe(self, routers: Collection[str], frontends: int, now: float) -> None:
        """Take in which routers are alive, and how many frontends, this one among them.

        What waits for answers should be tried again then: an owner that is gone gives none.
        """
        self._frontends = max(1, frontends)
        if self._routers == frozenset(routers):
            return
        self._routers, self.alone = frozenset(routers), not routers
        self._epoch += 1
        self._alone_since = now if self.alone else None
        for share in list((self._active | self._outgoing).values()):
            self.check_owner(share, now)

    def limit_set(self, subjects: Iterable[SubjectLimits]) -> LimitSet:
        """Return the limits of a key, its project and its tenant, as their records are now."""
        limits = (limit for one in subjects for limit in one.limits())
        return LimitSet(self, [self._share(limit) for limit in limits])

    def take_messages(self, now: float) -> list[tuple[str, Ask]]:
        """Return what to send, and to which routers."""
        shares, self._outgoing = self._outgoing, {}
        shares = {limit_id: share for limit_id, share in shares.items() if share.has_message}
        self._active.update(shares)
        return [(share.owner, share.ask(now)) for share in shares.values()]

    def receive(self, router: str, answer: Answer, now: float) -> None:
        """Take in a router's answer; one of an earlier term makes it hear of the present one."""
        share = self._shares.get(answer.limit_id)
        if share is None or share.owner != router:
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

    def connected(self, router: str) -> None:
        """Say again what was said last: what was on its way to a router may be lost."""
        for limit_id, share in self._active.items():
            if share.owner == router:
                share.say_again()
                self._outgoing[limit_id] = share

    def tick(self, now: float) -> None:
        """Return what is not used, and forget the shares that hold nothing."""
        for limit_id, share in list(self._active.items()):
            share.tick(now)
            if share.changed:
                self._outgoing[limit_id] = share
            elif share.idle:
                del self._active[limit_id]

    def refill(self, shares: Sequence[Share], now: float) -> None:
        """Add what came to shares while no router is alive."""
        for share in shares:
            self.check_owner(share, now)
            share.refill(self._frontends, now)
            self._active[share.limit.id] = share

    def check_owner(self, share: Share, now: float) -> None:
        """Begin a term with the router that owns a limit now, if it is another one."""
        if share.epoch == self._epoch:
            return
        share.epoch = self._epoch
        owner = choose(share.digest, self._routers) if self._routers else ""
        if owner != share.owner or not share.term:
            self._begin(share, owner, now, keep=bool(share.owner))

    def ask(self, share: Share) -> None:
        """Send the share's message with the next ones."""
        self._outgoing[share.limit.id] = share

    def tell(self, share: Share) -> None:
        """Send the share's message with the next tick, or with what it asks before."""
        self._active[share.limit.id] = share

    def _share(self, limit: Limit) -> Share:
        share = self._shares.get(limit.id)
        if share is None:
            share = self._shares[limit.id] = Share(limit)
        elif limit.version >= share.limit.version:
            share.limit = limit
        return share

    def _begin(self, share: Share, owner: str, now: float, *, keep: bool) -> None:
        self._terms += 1
        if not owner and self._alone_since is not None:
            now = self._alone_since  # its part comes from then on, whenever it is first used
        share.begin_term(self._terms, owner, now, keep=keep)
        if share.changed:
            self._outgoing[share.limit.id] = share
