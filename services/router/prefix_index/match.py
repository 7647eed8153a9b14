"""The leading blocks of a chain that have at least one holder."""

from collections.abc import Sequence
from typing import NamedTuple

from services.router.prefix_index.holders import HolderTable


class Coverage(NamedTuple):
    """How one worker would obtain a prompt's leading blocks; counts of blocks."""

    engine: int = 0
    """In its own engine's pages: no transfer needed."""
    local: int = 0
    """In the memory of its own store."""
    remote: int = 0
    """In another store, or on a disk."""

    @property
    def blocks(self) -> int:
        """Leading blocks that need no computing."""
        return self.engine + self.local + self.remote


class Match:
    """The held part of a chain as runs of blocks with equal holders. Valid until events come."""

    __slots__ = ("holders", "runs")

    def __init__(self, holders: HolderTable, runs: Sequence[tuple[int, int]]) -> None:
        self.holders = holders
        self.runs = runs
        """(mask, blocks) in chain order; every mask contains at least one live holder."""

    def stores(self) -> list[str]:
        """Return the stores that hold any block of the match, the one with the most first."""
        runs, seen = self.runs, 0
        for mask, _ in runs:
            seen |= mask
        stores = self.holders.stores(seen)
        if len(stores) == 1:
            return [stores[0][0]]
        held = [
            (-sum([blocks for mask, blocks in runs if mask & bits]), store)
            for store, bits in stores
        ]
        return [store for _, store in sorted(held)]
