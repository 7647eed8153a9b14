"""Which workers hold the runs of a match, as arrays cached for matches of the same sets.

Sets of holders are few, and so are the sequences of them that prompts meet: their meaning for each
worker is computed once, and a match only says how many blocks each run has.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.router.prefix_index.holders import DRAM, ENGINE, HolderTable
from services.router.prefix_index.match import Match

_MAX_ENTRIES = 33_554_432
"""Entries of all cached arrays: 32 MB."""


class RunHoldings(NamedTuple):
    """How each worker would obtain each run of a match: 1 if it would, otherwise 0."""

    kinds: NDArray[np.uint8]
    """[run, kind, worker]; kinds: in its own pages, in its store's memory, elsewhere, any."""
    moves: bool
    """Whether any worker would fetch any of it."""
    sole_stores: NDArray[np.int64]
    """By run: the number of the only store that has it; -1: there are several, or none, or it is no
    worker's local store."""
    addresses: tuple[int, int]
    """Addresses of both arrays, for compiled code."""


class HoldingsTable:
    """What sequences of holder sets mean to workers. Owned by one event loop.

    Args:
        workers: id and store of each; a worker without a store fetches nothing.
        stores: the numbers of their stores; other stores have none.
    """

    def __init__(self, workers: Sequence[tuple[str, str]], stores: Mapping[str, int]) -> None:
        self._workers = workers
        self._stores = stores
        self._fetches = np.array([bool(store) for _, store in workers], bool)
        self._holders: HolderTable | None = None
        self._version = -1
        self._known: dict[tuple[int, ...], RunHoldings] = {}
        self._entries = 0

    def of(self, match: Match) -> RunHoldings:
        """Return the holders of a match's runs."""
        holders = match.holders
        if holders is not self._holders or holders.version != self._version:
            self._begin(holders)
        masks = tuple([mask for mask, _ in match.runs])
        known = self._known.get(masks)
        if known is None:
            known = self._compute(holders, masks)
            if self._entries + known.kinds.size > _MAX_ENTRIES:
                self._known.clear()
                self._entries = 0
            self._known[masks] = known
            self._entries += known.kinds.size
        return known

    def _begin(self, holders: HolderTable) -> None:
        """Clear the cache: bits mean other holders now."""
        self._holders, self._version = holders, holders.version
        self._known.clear()
        self._entries = 0
        # A bit that no set has stands for what a worker lacks.
        self._width = none = holders.bits_made
        engines, stores = holders.bits[ENGINE], holders.bits[DRAM]
        bits = [(engines.get(worker, 0), stores.get(store, 0)) for worker, store in self._workers]
        at = [[bit.bit_length() - 1 if bit else none for bit in both] for both in bits]
        self._own, self._near = np.array(at, np.int64).reshape(-1, 2).T

    def _compute(self, holders: HolderTable, masks: Sequence[int]) -> RunHoldings:
        kinds = np.zeros((len(masks), 4, len(self._workers)), np.uint8)
        # Own pages count as far as they reach from the start: an engine reuses a prefix, not an
        # island. Other engines' never count, since only stores hand out blocks.
        has_all = np.ones(len(self._workers), bool)
        in_engine = has_all
        size = self._width // 8 + 1
        sole = []
        for mask, run in zip(masks, kinds, strict=True):
            packed = np.frombuffer(mask.to_bytes(size, "little"), np.uint8)
            held = np.unpackbits(packed, bitorder="little").view(bool)
            in_engine = in_engine & held[self._own]
            near = has_all & held[self._near] & ~in_engine
            in_stores = mask & holders.store_bits
            far = has_all & self._fetches & ~in_engine & ~near if in_stores else np.False_
            has_all = in_engine | near | far
            run[0], run[1], run[2], run[3] = in_engine, near, far, has_all
            store = _sole_store(holders, in_stores)
            sole.append(self._stores.get(store, -1) if store is not None else -1)
        stores = np.array(sole, np.int64)
        addresses = kinds.ctypes.data, stores.ctypes.data
        return RunHoldings(kinds, bool(kinds[:, 1:3].any()), stores, addresses)


def _sole_store(holders: HolderTable, in_stores: int) -> str | None:
    if not in_stores:
        return None
    store = holders.owner(in_stores & -in_stores)
    return None if in_stores & ~holders.holder_bits(store) else store
