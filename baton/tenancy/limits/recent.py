"""Recent grants of a per-minute limit to a frontend, by whichever router owned it."""

from collections import deque
from typing import Any

from baton.tenancy.limits.spec import Limit

_SLOTS = 12


class RecentGrants:
    """Units granted and not returned, within the time in which a bucket fills.

    A limit's bucket lacks at most what all frontends were granted in that time, in which it refills
    completely. Times are rounded so that nothing is omitted. Returned units cancel the latest
    grants first and never more than exist, so that this remains true. Owned by a
    `LimitShare`; bounded: 14 numbers.
    """

    __slots__ = ("_limit", "_seconds", "_slots", "_sum")

    def __init__(self) -> None:
        self._slots: deque[list[Any]] = deque()
        """Start time of each slot, a number, and the units granted in it, an int."""
        self._sum = 0
        self._limit: Limit | None = None
        self._seconds = 0.0
        """Seconds in which the bucket of that limit fills."""

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self._slots)

    def add(self, units: int, limit: Limit, now: float) -> None:
        """Count granted units."""
        if not units:
            return
        self._forget(limit, now)
        self._sum += units
        if self._slots and now < self._slots[-1][0] + self._seconds / _SLOTS:
            self._slots[-1][1] += units
        else:
            self._slots.append([now, units])

    def take_back(self, units: int) -> None:
        """Count units that were returned, or are void and unused."""
        slots = self._slots
        while slots:
            latest = slots[-1]
            if latest[1] > units:
                latest[1] -= units
                self._sum -= units
                return
            slots.pop()
            units -= latest[1]
            self._sum -= latest[1]

    def total(self, limit: Limit, now: float) -> int:
        """Return the units granted within the time in which the limit's bucket fills."""
        if not self._slots:
            return 0
        self._forget(limit, now)
        return min(limit.burst, self._sum)

    def _forget(self, limit: Limit, now: float) -> None:
        if limit is not self._limit:
            self._limit, self._seconds = limit, fill_seconds(limit)
        seconds = self._seconds * (1 + 1 / _SLOTS)
        while self._slots and self._slots[0][0] + seconds <= now:
            self._sum -= self._slots.popleft()[1]


def fill_seconds(limit: Limit) -> float:
    """Return how long the bucket of a limit per minute takes to fill."""
    return limit.burst * 60 / limit.per_minute
