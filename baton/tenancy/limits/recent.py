"""What a frontend was granted of a limit per minute of late, whichever router owned it."""

from collections import deque

from baton.tenancy.limits.spec import Limit

_SLOTS = 12


class RecentGrants:
    """Units that were granted and did not go back, within the time in which a bucket fills.

    A limit's bucket lacks no more than all frontends were granted in that time: it gained as much
    as it holds meanwhile. Times are rounded so that nothing is left out. What goes back cancels the
    latest grants first and never more than there are, so that this stays true. Owned by a `Share`;
    bounded: 14 numbers.
    """

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[tuple[float, int]] = deque()
        """When each began, and the units that came in it."""

    def __len__(self) -> int:
        """Return how many times are remembered in which units came."""
        return len(self._slots)

    def add(self, units: int, limit: Limit, now: float) -> None:
        """Count units that came."""
        if self._slots and now < self._slots[-1][0] + fill_seconds(limit) / _SLOTS:
            began, before = self._slots[-1]
            self._slots[-1] = began, before + units
        elif units:
            self._slots.append((now, units))
            self._forget(limit, now)

    def take_back(self, units: int) -> None:
        """Count units that went back, or are void and were not used."""
        while units and self._slots:
            began, before = self._slots.pop()
            if before > units:
                self._slots.append((began, before - units))
            units -= min(units, before)

    def total(self, limit: Limit, now: float) -> int:
        """Return the units that came in the time in which the limit's bucket fills."""
        self._forget(limit, now)
        return min(limit.burst, sum(units for _, units in self._slots))

    def _forget(self, limit: Limit, now: float) -> None:
        seconds = fill_seconds(limit) * (1 + 1 / _SLOTS)
        while self._slots and self._slots[0][0] + seconds <= now:
            self._slots.popleft()


def fill_seconds(limit: Limit) -> float:
    """Return how long the bucket of a limit per minute takes to fill."""
    return limit.burst * 60 / limit.per_minute
