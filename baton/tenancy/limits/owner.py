"""The buckets that a router owns: per limit, those of one router count."""

from collections import OrderedDict, deque
from collections.abc import Collection

from baton.rendezvous import choose
from baton.tenancy.limits.bucket import Bucket, PlacesBucket, RateBucket
from baton.tenancy.limits.messages import Answer, Ask
from baton.tenancy.limits.spec import LimitId

SETTLE_SECONDS = 1.0
"""A new owner's buckets begin to fill so long after it became that: by then every frontend has seen
the change, and what it had from the owner before is used or void."""
_NOT_OWNER_WAIT_SECONDS = 0.1
_MAX_CHANGES = 16
"""Changes of the routers that are remembered; before the oldest, nothing is known."""


class Ownership:
    """Since when this router owns a limit. Pure; of one router."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._changes: deque[tuple[float, frozenset[str]]] = deque(maxlen=_MAX_CHANGES)
        """When the routers alive became these, the latest first."""

    def observe(self, routers: Collection[str], now: float) -> bool:
        """Take in which routers are alive, this one among them; return whether that is news."""
        alive = frozenset(routers) | {self._router}
        if self._changes and self._changes[0][1] == alive:
            return False
        self._changes.appendleft((now, alive))
        return True

    def since(self, key: bytes) -> float | None:
        """Return since when without a break; None: another router owns it now."""
        since = None
        for at, routers in self._changes:
            if choose(key, routers) != self._router:
                break
            since = at
        return since


class LimitOwner:
    """Answers frontends from the buckets of the limits that this router owns.

    Bounded by the limits that there are: `sweep` forgets those that nobody uses. A bucket counts as
    empty when this router became its owner, whether it was asked for then or not.
    """

    def __init__(self, router: str, settle_seconds: float = SETTLE_SECONDS) -> None:
        """Own nothing before the first `observe`.

        Args:
            router: id of this one, as all processes know it.
            settle_seconds: how long after a change of routers buckets begin to fill.
        """
        self._settle_seconds = settle_seconds
        self._ownership = Ownership(router)
        self._buckets: OrderedDict[LimitId, Bucket] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of buckets."""
        return len(self._buckets)

    def __contains__(self, limit_id: LimitId) -> bool:
        """Return whether there is a bucket of a limit; after `answer`: whether it is owned."""
        return limit_id in self._buckets

    def observe(self, routers: Collection[str], now: float) -> None:
        """Take in which routers are alive; forget the buckets that are another one's now."""
        if self._ownership.observe(routers, now):
            for one in [one for one in self._buckets if self._since(one) is None]:
                del self._buckets[one]

    def answer(self, frontend: str, ask: Ask, now: float) -> Answer | None:
        """Answer a frontend; None: there is nothing to say.

        Args:
            frontend: its incarnation.
            ask: what it says.
            now: a monotonic clock, in seconds.
        """
        bucket = self._buckets.get(ask.limit.id)
        if bucket is None:
            since = self._since(ask.limit.id)
            if since is None:
                if ask.is_report:
                    return None
                return Answer(ask.limit.id, ask.term, 0, 0, 0, _NOT_OWNER_WAIT_SECONDS)
            kind = RateBucket if ask.limit.per_minute else PlacesBucket
            bucket = kind(ask.limit, since + self._settle_seconds)
            self._buckets[ask.limit.id] = bucket
        return bucket.answer(frontend, ask, now)

    def drop(self, frontend: str) -> None:
        """Forget a frontend that is dead: its requests are, too."""
        for bucket in self._buckets.values():
            bucket.drop(frontend)

    def sweep(self, most: int = 1000) -> None:
        """Forget buckets that are as a new one would be, of at most so many that are looked at."""
        for _ in range(min(most, len(self._buckets))):
            limit_id, bucket = self._buckets.popitem(last=False)
            if not bucket.unused:
                self._buckets[limit_id] = bucket

    def _since(self, limit_id: LimitId) -> float | None:
        return self._ownership.since(limit_id.digest())
