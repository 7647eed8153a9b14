"""A frontend's 1/N part of a limit while no router is alive."""

import math

from baton.tenancy.limits.spec import Limit

_PARTS = 60 * 10**9
"""Parts of a unit, so that sums are exact."""
_BUSY_WAIT_SECONDS = 0.5


class LocalPart:
    """The part of a limit that one of N frontends gets. All parts together never exceed the
    burst."""

    __slots__ = ("_at", "_parts", "_rate", "_spent", "most")

    def __init__(self, now: float) -> None:
        """Start empty."""
        self._at = int(now * 1e9)
        self._parts = 0
        self._spent: int | None = None
        self._rate = 0.0
        self.most = 0
        """Most units that may be available, as of the last `take`."""

    def begin_with(self, spent: int) -> None:
        """Start with the burst's part instead, less units recently granted to this frontend."""
        self._spent = spent

    def take(self, limit: Limit, frontends: int, available: int, now: float) -> int:
        """Return the whole units that have accrued, up to the capacity.

        Args:
            limit: limit of all frontends together.
            frontends: number of frontends.
            available: unused units from before.
            now: a monotonic clock, in seconds.
        """
        at = int(now * 1e9)
        unit = _PARTS * frontends
        self.most = limit.burst // frontends
        self._rate = limit.per_minute / 60 / frontends
        self._parts += (at - self._at) * limit.per_minute
        if self._spent is not None:
            self._parts += max(0, limit.burst - self._spent * frontends) * _PARTS
            self._spent = None
        self._at = at
        self._parts = max(0, min(self._parts, (limit.burst - available * frontends) * _PARTS))
        units = self._parts // unit
        self._parts -= units * unit
        return units

    def seconds(self, need: int) -> float:
        """Return the seconds until `need` more units accrue; infinity: never."""
        if need > self.most:
            return math.inf
        return need / self._rate if self._rate else _BUSY_WAIT_SECONDS
