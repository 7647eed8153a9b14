"""A chain's leading blocks that somebody holds."""

from collections.abc import Sequence
from typing import NamedTuple

from services.router.prefix_index.holders import DRAM, ENGINE, SlotTable


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

    __slots__ = ("_slots", "runs")

    def __init__(self, slots: SlotTable, runs: Sequence[tuple[int, int]]) -> None:
        self._slots = slots
        self.runs = runs
        """(mask, blocks) in chain order; every mask names at least one live slot."""

    def cover(self, worker_id: str, store_id: str, without: str = "") -> Coverage:
        """What of the chain a worker has or can fetch.

        Its own pages count as far as they reach from the start (an engine reuses a prefix, not an
        island); pages of other engines never count, since only stores hand out blocks.

        Args:
            worker_id: the worker.
            store_id: the store that it fetches through; empty where it can't fetch.
            without: another store that it does not fetch from.
        """
        if not self.runs:
            return NOTHING
        slots = self._slots
        own = slots.bits(worker_id, ENGINE)
        near = slots.bits(store_id, DRAM)
        stores = slots.store_bits if store_id else 0
        if without:
            stores &= ~slots.holder_bits(without)
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

    def prefix(self, holder: str) -> int:
        """Length in blocks of the longest prefix that one holder has, over all its tiers."""
        bits = self._slots.holder_bits(holder)
        total = 0
        for mask, blocks in self.runs:
            if not mask & bits:
                break
            total += blocks
        return total

    def in_stores(self) -> int:
        """Length in blocks of the longest prefix of which stores hold every block."""
        total = 0
        for mask, blocks in self.runs:
            if not mask & self._slots.store_bits:
                break
            total += blocks
        return total

    def lacks(self, store_id: str, blocks: int) -> bool:
        """Whether any of the first blocks is not in a store's memory."""
        near = self._slots.bits(store_id, DRAM)
        for mask, count in self.runs:
            if blocks <= 0:
                break
            if not mask & near:
                return True
            blocks -= count
        return blocks > 0

    def stores(self, first: int | None = None) -> list[str]:
        """Stores that hold any block of the match, the one with the most blocks first.

        Args:
            first: look at so many leading blocks only; None: at all.
        """
        runs = self.runs if first is None else self._first(first)
        seen = 0
        for mask, _ in runs:
            seen |= mask
        held = {}
        for holder in self._slots.holders(seen & self._slots.store_bits):
            bits = self._slots.holder_bits(holder)
            held[holder] = sum(blocks for mask, blocks in runs if mask & bits)
        return sorted(held, key=lambda holder: (-held[holder], holder))

    def _first(self, blocks: int) -> list[tuple[int, int]]:
        runs = []
        for mask, count in self.runs:
            if blocks <= 0:
                break
            runs.append((mask, min(count, blocks)))
            blocks -= count
        return runs
