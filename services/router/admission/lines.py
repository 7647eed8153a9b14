"""What waits, in order: by class and rank, by tenants' shares, by key."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from typing import NamedTuple

from services.router.admission.class_shares import ClassShares
from services.router.admission.fairness import FairShares
from services.router.admission.waiting import Waiting

Entry = tuple[float, int, Waiting]
"""Key, number and the request itself; no two have one number."""


class Group(NamedTuple):
    """Requests that are equal but for their keys. Valid until a line changes."""

    rank: tuple[int, int]
    priority_class: int
    lines: Mapping[str, Sequence[Entry]]
    """By tenant, in order."""

    def merged(self) -> Iterator[Entry]:
        """Yield the requests in order."""
        return merge(*self.lines.values())

    def holds(self, waiting: Waiting) -> bool:
        """Return whether a request that waits is one of these."""
        own = waiting.rank == self.rank and waiting.priority_class == self.priority_class
        return own and waiting.tenant in self.lines


class Lines:
    """Requests that wait, in a sorted line for each rank, class and tenant. One loop owns it.

    Args:
        shares: of the tenants.
        classes: of priority classes.
    """

    def __init__(self, shares: FairShares, classes: ClassShares) -> None:
        self._shares = shares
        self._classes = classes
        self._lines: dict[tuple[tuple[int, int], int], dict[str, list[Entry]]] = {}
        """By rank and class, then by tenant."""

    def __len__(self) -> int:
        """Return the number of requests in all lines."""
        return sum(len(line) for lines in self._lines.values() for line in lines.values())

    def add(self, waiting: Waiting) -> None:
        """Add a request under its key."""
        lines = self._lines.setdefault((waiting.rank, waiting.priority_class), {})
        insort(lines.setdefault(waiting.tenant, []), (waiting.key, waiting.number, waiting))

    def remove(self, waiting: Waiting) -> None:
        """Take a request out, whose key is as it was added."""
        rank = waiting.rank, waiting.priority_class
        lines = self._lines[rank]
        line = lines[waiting.tenant]
        del line[bisect_left(line, (waiting.key, waiting.number, waiting))]
        if not line:
            del lines[waiting.tenant]
            if not lines:
                del self._lines[rank]

    def priority_classes(self) -> set[int]:
        """Return the classes of those that wait."""
        return {priority_class for _, priority_class in self._lines}

    def groups(self, *, held: bool) -> Iterator[Group]:
        """Yield what waits in order, in groups of those that are equal but for their keys.

        Classes that are owed go first, by rank; then the others, by rank; those that have as much
        as they may have come last. Nothing may change between.

        Args:
            held: whether those last ones are wanted.
        """
        classes = self._classes
        leads = self._shares.leads()
        ranks = [(classes.held(rank[1]), not classes.owed(rank[1]), *rank) for rank in self._lines]
        for is_held, _, rank, priority_class in sorted(ranks):
            if is_held and not held:
                return
            lines = self._lines[rank, priority_class]
            tenants = sorted(lines, key=leads.__getitem__)
            for _, equal in groupby(tenants, key=leads.__getitem__):
                yield Group(rank, priority_class, {tenant: lines[tenant] for tenant in equal})

    def last(self, tenant: str | None) -> int:
        """Return the number of the last one to go of the lowest rank.

        Args:
            tenant: whose requests are meant; None: all tenants'.

        Raises:
            LookupError: nothing waits.
        """
        leads = self._shares.leads()
        for rank in sorted(self._lines, reverse=True):
            lines = self._lines[rank]
            if tenant is None:
                return max((leads[name], line[-1]) for name, line in lines.items())[1][1]
            if tenant in lines:
                return lines[tenant][-1][1]
        raise LookupError("nothing waits")
