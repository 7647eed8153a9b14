"""The buckets that a router owns: one per limit."""

from collections import OrderedDict, deque
from collections.abc import Collection, Mapping

from baton.cluster.rendezvous import choose
from baton.tenancy.limits.bucket import Bucket, PlacesBucket, RateBucket
from baton.tenancy.limits.budget.account import Account
from baton.tenancy.limits.budget.roll_call import RollCall
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.spec import LimitId, Measure

SETTLE_SECONDS = 1.0
"""A new owner that lacks reports of recent grants from some frontends treats its buckets as empty,
and filling from this long after it became the owner: by then every frontend knows of the change,
and its earlier grants are used or void."""
_NOT_OWNER_WAIT_SECONDS = 0.1
ACCOUNT_SECONDS = 60.0
"""A budget is forgotten this long after it was last mentioned."""
_MAX_CHANGES = 16
"""Changes of the routers that are remembered; nothing is known before the oldest."""


class Ownership:
    """Since when this router has owned a limit. Pure; one per router."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._changes: deque[tuple[float, frozenset[str]]] = deque(maxlen=_MAX_CHANGES)
        """When the set of live routers became this, latest first."""

    def observe(self, routers: Collection[str], now: float) -> bool:
        """Update which routers are alive, including this one; return whether that changed."""
        alive = frozenset(routers) | {self._router}
        if self._changes and self._changes[0][1] == alive:
            return False
        self._changes.appendleft((now, alive))
        return True

    def since(self, key: bytes) -> float | None:
        """Return since when it has owned a key without interruption; None: another router owns it
        now."""
        since = None
        for at, routers in self._changes:
            if choose(key, routers) != self._router:
                break
            since = at
        return since


class LimitOwner:
    """Grants units to frontends from the buckets of the limits that this router owns.

    Bounded by the number of limits: `sweep` forgets unused ones. Recent grants that frontends
    report are deducted from a bucket. Until all have reported, it counts as empty at the time this
    router became its owner, and frontends that need units are answered a moment later.
    """

    def __init__(self, router: str, settle_seconds: float = SETTLE_SECONDS) -> None:
        """Own nothing before the first `observe`.

        Args:
            router: ID of this router, as all processes know it.
            settle_seconds: how long after a change of routers buckets start to fill.
        """
        self._settle_seconds = settle_seconds
        self._ownership = Ownership(router)
        self._buckets: OrderedDict[LimitId, Bucket] = OrderedDict()
        self._accounts: OrderedDict[LimitId, Account] = OrderedDict()
        self.roll_call = RollCall()
        """Roll call of the frontends, for budgets and for recent grants of limits."""
        self.wall_seconds = 0.0
        """Seconds since the Unix epoch; the driver sets it periodically."""
        self.waiting: set[LimitId] = set()
        """Limits for which frontends wait for replies: call `serve` soon."""
        self._unanswered: dict[LimitId, dict[str, Ask]] = {}
        """By frontend, messages that cannot be answered before their bucket is known."""
        self.unread: dict[LimitId, None] = {}
        """Budgets whose records must be read; a `Ledger` removes them."""
        self.unwritten: dict[LimitId, None] = {}
        """Budgets whose records must be written, the oldest change first; a `Ledger` removes
        them."""
        self._pushed: list[tuple[str, LimitGrant]] = []

    def __len__(self) -> int:
        """Return the number of buckets and budgets."""
        return len(self._buckets) + len(self._accounts)

    def __contains__(self, limit_id: LimitId) -> bool:
        """Return whether a limit has a bucket; after `answer`: whether it is owned."""
        return limit_id in self._buckets or limit_id in self._accounts

    @property
    def accounts(self) -> Mapping[LimitId, Account]:
        """The budgets in use; a live view."""
        return self._accounts

    def observe(self, routers: Collection[str], now: float) -> bool:
        """Update which routers are alive; forget the buckets that another one owns now.

        Returns:
            Whether that changed: send `roll_call.era` to all frontends.
        """
        if not self._ownership.observe(routers, now):
            return False
        self.roll_call.begin(routers, now)
        for one in [one for one in self._buckets if self._since(one) is None]:
            del self._buckets[one]
            self._unanswered.pop(one, None)
            self.waiting.discard(one)
        for account in self._accounts.values():
            account.reported = False
        return True

    def lost_accounts(self) -> dict[LimitId, Account]:
        """Return the budgets that another router owns now, and forget them."""
        lost = {one: account for one, account in self._accounts.items() if self._since(one) is None}
        for one in lost:
            del self._accounts[one]
            self.waiting.discard(one)
            self.unread.pop(one, None)
            self.unwritten.pop(one, None)
        return lost

    def answer(self, frontend: str, ask: Ask, now: float) -> LimitGrant | None:
        """Answer a frontend; None: there is no reply now.

        Resulting messages to other frontends, and later ones to this one, are in `take_pushed`.

        Args:
            frontend: its incarnation.
            ask: its message.
            now: a monotonic clock, in seconds.
        """
        limit_id = ask.limit.id
        if limit_id.measure is Measure.COST:
            return self._answer_cost(frontend, ask, now)
        bucket = self._buckets.get(limit_id)
        if bucket is None:
            since = self._since(limit_id)
            if since is None:
                return _not_owner(ask)
            kind = RateBucket if ask.limit.per_minute else PlacesBucket
            bucket = kind(ask.limit, since + self._settle_seconds)
            self._buckets[limit_id] = bucket
        if not bucket.known and self.roll_call.tells_recent([frontend], now):
            bucket.learn(now)
        if not bucket.known and bucket.lacks(frontend, ask, now) and self._may_learn(limit_id, now):
            self._unanswered.setdefault(limit_id, {})[frontend] = ask
            self.waiting.add(limit_id)
            return None
        return bucket.answer(frontend, ask, now)

    def serve(self, now: float) -> None:
        """Answer waiting requests whose bucket is known by now; see `take_pushed`."""
        for limit_id in list(self.waiting):
            if limit_id in self._buckets:
                self._serve_bucket(limit_id, now)
                continue
            account = self._accounts[limit_id]
            account.reported = account.reported or self.roll_call.complete(now)
            self._pushed += account.serve(now)
            self._note(limit_id, account)

    def take_pushed(self) -> list[tuple[str, LimitGrant]]:
        """Return messages to frontends that are not direct replies."""
        pushed, self._pushed = self._pushed, []
        return pushed

    def drop(self, frontend: str) -> None:
        """Forget a dead frontend and its requests. Budgets stay charged."""
        for bucket in self._buckets.values():
            bucket.drop(frontend)
        for asks in self._unanswered.values():
            asks.pop(frontend, None)
        for account in self._accounts.values():
            account.drop(frontend)
        if frontend not in self.roll_call.alive:
            self.roll_call.forget(frontend)

    def sweep(self, now: float, most: int = 1000) -> None:
        """Forget buckets that equal a new one, checking at most `most`."""
        for _ in range(min(most, len(self._buckets))):
            limit_id, bucket = self._buckets.popitem(last=False)
            if not bucket.unused:
                self._buckets[limit_id] = bucket
        for _ in range(min(most, len(self._accounts))):
            limit_id, account = self._accounts.popitem(last=False)
            if account.unused_since(now) < ACCOUNT_SECONDS:
                self._accounts[limit_id] = account

    def _answer_cost(self, frontend: str, ask: Ask, now: float) -> LimitGrant | None:
        limit_id = ask.limit.id
        account = self._accounts.get(limit_id)
        if account is None:
            if self._since(limit_id) is None:
                return _not_owner(ask)
            account = self._accounts[limit_id] = Account(ask.limit)
            self.unread[limit_id] = None
        account.reported = account.reported or self.roll_call.complete(now)
        account.charges.wall_seconds = self.wall_seconds
        answered: LimitGrant | None = None
        for name, answer in account.answer(frontend, ask, now):
            if name == frontend:
                answered = answer
            else:
                self._pushed.append((name, answer))
        self._note(limit_id, account)
        return answered

    def _serve_bucket(self, limit_id: LimitId, now: float) -> None:
        bucket = self._buckets[limit_id]
        if not bucket.known and self.roll_call.tells_recent(self._unanswered[limit_id], now):
            bucket.learn(now)
        if not bucket.known and self._may_learn(limit_id, now):
            return
        self.waiting.discard(limit_id)
        for frontend, ask in self._unanswered.pop(limit_id).items():
            answer = bucket.answer(frontend, ask, now)
            if answer is not None:
                self._pushed.append((frontend, answer))

    def _may_learn(self, limit_id: LimitId, now: float) -> bool:
        """Return whether frontends may still report recent grants of a limit soon."""
        since = self._since(limit_id)
        return since is not None and now < since + self._settle_seconds

    def _note(self, limit_id: LimitId, account: Account) -> None:
        if account.has_waiting:
            self.waiting.add(limit_id)
        else:
            self.waiting.discard(limit_id)
        if account.dirty:
            self.unwritten.setdefault(limit_id)

    def _since(self, limit_id: LimitId) -> float | None:
        return self._ownership.since(limit_id.digest())


def _not_owner(ask: Ask) -> LimitGrant | None:
    if ask.is_report:
        return None
    return LimitGrant(ask.limit.id, ask.term, 0, 0, 0, _NOT_OWNER_WAIT_SECONDS, reserved=ask.want)
