"""Charges of every frontend to a budget: of connected frontends, and of those in the record."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord

FOLD_SECONDS = 3600.0
"""Charges of a frontend that has been gone for this long are folded into one sum."""
MAX_FRONTENDS = 512
"""Frontends in a record; beyond this, those that are gone are folded immediately."""


@dataclass(slots=True)
class GrantHolder:
    """A frontend that communicates with this owner."""

    term: int
    granted: int
    returned: int = 0
    settled: int = 0
    held: int = 0
    """Granted units that are not reserved, as it reported."""
    keeps: int = 0
    """Units that it keeps ahead of need, as of its last report."""
    told_keeps: int = 0
    at_seconds: int = 0

    @property
    def charged(self) -> int:
        return self.granted - self.returned

    def charge(self) -> FrontendCharge:
        """Return the charge to record for it."""
        return FrontendCharge(self.term, self.charged, self.settled, self.at_seconds)


class ChargeTotals:
    """The sum of all charges, updated incrementally. Owned by an `Account`.

    Bounded by the number of frontends, and MAX_FRONTENDS.
    """

    def __init__(self) -> None:
        self.holders: dict[str, GrantHolder] = {}
        """Frontends that communicate with this owner."""
        self.gone: dict[str, FrontendCharge] = {}
        """Charges of frontends that do not, or not yet."""
        self.total = 0
        """Units granted to frontends and not returned."""
        self.wall_seconds = 0.0
        """Seconds since the Unix epoch; set by the owner of this."""
        self._unwritten: set[str] = set()
        """Frontends whose charge may not be in the record."""
        self._folded_charged = self._folded_settled = 0

    @property
    def reserved(self) -> int:
        """Units of live frontends, except the cost of ended requests."""
        return sum(one.charged - one.settled for one in self.holders.values())

    def begin(self, frontend: str, term: int, base: int) -> None:
        """Start with a frontend, or again: it was charged `base`, regardless of what was known
        before."""
        before = self.holders.pop(frontend, None)
        gone = self.gone.pop(frontend, None)
        was = before.charged if before is not None else gone.charged if gone is not None else 0
        self.holders[frontend] = GrantHolder(term, base)
        self.total += base - was
        self._changed(frontend)

    def take_in(self, frontend: str, returned: int, settled: int) -> None:
        """Record units that a frontend returned and spent; smaller sums are of earlier messages."""
        holder = self.holders[frontend]
        if returned > holder.returned:
            self.total -= returned - holder.returned
            holder.returned = returned
            self._changed(frontend)
        if settled > holder.settled:
            holder.settled = settled
            self._changed(frontend)

    def grant(self, frontend: str, units: int) -> None:
        """Charge a frontend with more units."""
        self.holders[frontend].granted += units
        self.total += units
        self._changed(frontend)

    def drop(self, frontend: str) -> None:
        """Drop a frontend that is gone: its charge stays until it reports again."""
        holder = self.holders.pop(frontend, None)
        if holder is not None:
            self.gone[frontend] = holder.charge()

    # The record.

    @property
    def dirty(self) -> bool:
        """Whether some changes may not be in the record."""
        return bool(self._unwritten)

    def load(self, record: SpendRecord) -> list[str]:
        """Load a record; return the frontends that have moved on to another owner since they
        reported.

        Of two charges of a frontend the later one is kept: that of the higher term and, within a
        term, the one reported here.
        """
        frontends = dict(record.frontends)
        for name in self._unwritten & self.gone.keys():
            mine, theirs = self.gone[name], frontends.get(name)
            if theirs is None or mine.term >= theirs.term:
                frontends[name] = mine
        moved = []
        for name, holder in list(self.holders.items()):
            theirs = frontends.pop(name, None)
            if theirs is not None and theirs.term > holder.term:
                moved.append(name)
                del self.holders[name]
                frontends[name] = theirs
        self.gone = frontends
        self._folded_charged = record.folded_charged
        self._folded_settled = record.folded_settled
        self.total = self._folded_charged + sum(one.charged for _, one in self._all())
        return moved

    def adds_to(self, record: SpendRecord) -> bool:
        """Return whether some charges are neither written nor in a record of another router."""
        for name, mine in self._all():
            theirs = record.frontends.get(name)
            if name not in self._unwritten:
                continue
            if theirs is None or theirs.term < mine.term:
                return True
            if theirs.term == mine.term and theirs.charged != mine.charged:
                return True
        return False

    def record(self, router: str, alive: Collection[str], alerts: tuple[str, ...]) -> SpendRecord:
        """Return the record to write; frontends that are not `alive` may be folded."""
        self._fold(alive)
        charges = dict(self._all())
        return SpendRecord(router, charges, self._folded_charged, self._folded_settled, alerts)

    def written(self, record: SpendRecord) -> None:
        """Note that a record returned by `record` was written."""
        now = dict(self._all())
        self._unwritten = {
            name for name in self._unwritten if now.get(name) != record.frontends.get(name)
        }

    def _all(self) -> Iterator[tuple[str, FrontendCharge]]:
        yield from self.gone.items()
        for name, holder in self.holders.items():
            yield name, holder.charge()

    def _changed(self, frontend: str) -> None:
        self._unwritten.add(frontend)
        self.holders[frontend].at_seconds = int(self.wall_seconds)

    def _fold(self, alive: Collection[str]) -> None:
        """Fold the charges of frontends that have long been gone."""
        gone = [name for name in self.gone.keys() - self._unwritten if name not in alive]
        many = len(self.gone) + len(self.holders) - MAX_FRONTENDS
        gone.sort(key=lambda name: self.gone[name].at_seconds)
        for number, name in enumerate(gone):
            one = self.gone[name]
            if number < many or self.wall_seconds - one.at_seconds >= FOLD_SECONDS:
                del self.gone[name]
                self._folded_charged += one.charged
                self._folded_settled += one.settled
