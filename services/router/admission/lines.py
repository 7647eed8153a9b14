"""Waiting requests in order: by class and tier, by tenants' shares, by key."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby
from typing import NamedTuple

from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tier_shares import TierShares
from services.router.admission.waiting import WaitingRequest

Section = tuple[bool, bool]
"""Whether a class has reached its ceiling, and whether it has received its floor. The lowest goes
first, whatever the tier."""
Entry = tuple[float, int, WaitingRequest]
"""Key, number and the request itself; numbers are unique."""


class QueueGroup(NamedTuple):
    """Requests that are equal except for their keys. Valid until a line changes."""

    section: Section
    rank: tuple[int, int]
    priority_class: int
    lines: Mapping[str, Sequence[Entry]]
    """Entries by tenant, in order."""

    def merged(self) -> Iterator[Entry]:
        """Yield the requests in order."""
        return merge(*self.lines.values())

    def holds(self, waiting: WaitingRequest) -> bool:
        """Return whether a waiting request is in this group."""
        own = waiting.rank == self.rank and waiting.priority_class == self.priority_class
        return own and waiting.tenant in self.lines


class Lines:
    """Waiting requests, in a sorted line per rank, class and tenant. Owned by one event loop.

    Args:
        shares: of the tenants.
        tiers: of the tenants' tiers.
        classes: of priority classes.
    """

    def __init__(self, shares: FairShares, tiers: TierShares, classes: ClassShares) -> None:
        self._shares = shares
        self._tiers = tiers
        self._classes = classes
        self._lines: dict[tuple[tuple[int, int], int], dict[str, list[Entry]]] = {}
        """Lines by rank and class, then by tenant."""

    def __len__(self) -> int:
        """Return the number of requests in all lines."""
        return sum(len(line) for lines in self._lines.values() for line in lines.values())

    def add(self, waiting: WaitingRequest) -> None:
        """Add a request under its key."""
        lines = self._lines.setdefault((waiting.rank, waiting.priority_class), {})
        insort(lines.setdefault(waiting.tenant, []), (waiting.key, waiting.number, waiting))

    def remove(self, waiting: WaitingRequest) -> None:
        """Remove a request, whose key is the one it was added with."""
        rank = waiting.rank, waiting.priority_class
        lines = self._lines[rank]
        line = lines[waiting.tenant]
        del line[bisect_left(line, (waiting.key, waiting.number, waiting))]
        if not line:
            del lines[waiting.tenant]
            if not lines:
                del self._lines[rank]

    def priority_classes(self) -> set[int]:
        """Return the classes of waiting requests."""
        return {priority_class for _, priority_class in self._lines}

    def class_ranks(self) -> set[int]:
        """Return the ranks of the classes of waiting requests."""
        return {rank for (_, rank), _ in self._lines}

    def section(self, priority_class: int) -> Section:
        """Return the section of a class that has waiting requests."""
        return self._classes.held(priority_class), not self._classes.owed(priority_class)

    def groups(self, *, held: bool) -> Iterator[QueueGroup]:
        """Yield waiting requests in groups that are equal except for their keys.

        Classes below their floor come first, then the others; those at their ceiling come last.
        Within these, groups come by tier; each tier's are in order. The lines must not change
        during the iteration.

        Args:
            held: whether to include classes at their ceiling.
        """
        leads = self._shares.leads()
        ranks = [(self.section(rank[1]), *rank) for rank in self._lines]
        for section, rank, priority_class in sorted(ranks):
            if section[0] and not held:
                return
            lines = self._lines[rank, priority_class]
            tenants = sorted(lines, key=leads.__getitem__)
            for _, equal in groupby(tenants, key=leads.__getitem__):
                of_these = {tenant: lines[tenant] for tenant in equal}
                yield QueueGroup(section, rank, priority_class, of_these)

    def in_order(self, *, held: bool) -> Iterator[Entry]:
        """Yield waiting requests in order, with tiers taking turns by their shares.

        Args:
            held: whether to include classes at their ceiling.
        """
        for _, section in groupby(self.groups(held=held), key=lambda one: one.section):
            tiers = {
                tier: chain.from_iterable([one.merged() for one in groups])
                for tier, groups in groupby(section, key=lambda one: one.rank[0])
            }
            yield from self._tiers.merge(tiers)

    def last(self, tenant: str | None, tier: int | None = None) -> int | None:
        """Return the number of the last request of the lowest rank; None: no such request waits.

        Args:
            tenant: only requests of this tenant; None: of all tenants.
            tier: only requests of this tier; None: of all tiers.
        """
        leads = self._shares.leads()
        for rank in sorted(self._lines, reverse=True):
            if tier is not None and rank[0][0] != tier:
                continue
            lines = self._lines[rank]
            if tenant is None:
                return max((leads[name], line[-1]) for name, line in lines.items())[1][1]
            if tenant in lines:
                return lines[tenant][-1][1]
        return None
