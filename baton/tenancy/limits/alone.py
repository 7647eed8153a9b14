"""A frontend's part of a limit while no router is alive: one of N."""

import math

from baton.tenancy.limits.spec import Limit

_PARTS = 60 * 10**9
"""Parts of a unit, so that sums are exact."""
_BUSY_WAIT_SECONDS = 0.5


class LocalPart:
    """What comes to one of N frontends. All of them together have at most the burst."""

    __slots__ = ("_at", "_parts", "_rate", "_spent", "most")

    def __init__(self, now: float) -> None:
        """Begin empty."""
        self._at = int(now * 1e9)
        self._parts = 0
        self._spent: int | None = None
        self._rate = 0.0
        self.most = 0
        """Units that may be available, as of the last `take`."""

    def begin_with(self, spent: int) -> None:
        """Begin with the burst's part instead, less units that this frontend was granted lately."""
        self._spent = spent

    def take(self, limit: Limit, frontends: int, available: int, now: float) -> int:
        """Return the whole units that have come, as far as there is room for them.

        Args:
            limit: of all frontends together.
            frontends: how many they are.
            available: units that came before and were not used.
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
        """Return when there will be so many units more; infinity: never."""
        if need > self.most:
            return math.inf
        return need / self._rate if self._rate else _BUSY_WAIT_SECONDS
