"""The leading blocks of a chain that some holder has."""

from collections.abc import Sequence
from typing import NamedTuple

from services.router.prefix_index.holders import DRAM, ENGINE, HolderTable


class Coverage(NamedTuple):
    """How one worker would get at a prompt's leading blocks; counts of blocks."""

    engine: int = 0
    """In its own engine's pages: nothing to do."""
    local: int = 0
    """In the memory of its own store."""
    remote: int = 0
    """In another store, or on a disk."""

    @property
    def blocks(self) -> int:
        """Leading blocks that need no computing."""
        return self.engine + self.local + self.remote


NOTHING = Coverage()


class Match:
    """The held part of a chain as runs of blocks with equal holders. Valid until events come."""

    __slots__ = ("_elsewhere", "_held_bits", "_holders", "runs")

    def __init__(self, holders: HolderTable, runs: Sequence[tuple[int, int]]) -> None:
        self._holders = holders
        self.runs = runs
        """(mask, blocks) in chain order; every mask names at least one live holder."""
        held_bits = 0
        for mask, _ in runs:
            held_bits |= mask
        self._held_bits = held_bits
        self._elsewhere = Coverage(0, 0, self.in_stores())
        """What a worker can fetch that holds none of it, and whose store holds none."""

    def cover(self, worker_id: str, store_id: str, exclude_store: str = "") -> Coverage:
        """Return what of the chain a worker has or can fetch.

        Its own pages count as far as they reach from the start (an engine reuses a prefix, not an
        island); pages of other engines never count, since only stores hand out blocks.

        Args:
            worker_id: the worker.
            store_id: the store that it fetches through; empty where it can't fetch.
            exclude_store: another store that it does not fetch from; empty: none.
        """
        if not self.runs:
            return NOTHING
        holders = self._holders
        own = holders.bits[ENGINE].get(worker_id, 0)
        near = holders.bits[DRAM].get(store_id, 0)
        if not (own | near) & self._held_bits and not exclude_store:
            return self._elsewhere if store_id else NOTHING
        stores = holders.store_bits if store_id else 0
        if exclude_store:
            stores &= ~holders.holder_bits(exclude_store)
        engine = local = remote = 0
        for mask, blocks in self.runs:
            if mask & own:
                engine += blocks
            elif mask & near:
                own = 0
                local += blocks
            elif mask & stores:
                own = 0
                remote += blocks
            else:
                break
        return Coverage(engine, local, remote)

    def in_stores(self) -> int:
        """Return the length in blocks of the longest prefix of which stores hold every block."""
        total = 0
        for mask, blocks in self.runs:
            if not mask & self._holders.store_bits:
                break
            total += blocks
        return total

    def stores(self) -> list[str]:
        """Return the stores that hold any block of the match, the one with the most first."""
        runs = self.runs
        seen = 0
        for mask, _ in runs:
            seen |= mask
        held = {}
        for holder in self._holders.holders(seen & self._holders.store_bits):
            bits = self._holders.holder_bits(holder)
            held[holder] = sum(blocks for mask, blocks in runs if mask & bits)
        return sorted(held, key=lambda holder: (-held[holder], holder))
