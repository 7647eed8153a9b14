"""The blocks of each worker, as in the router's index."""

from collections.abc import Iterable, Sequence

import numpy as np

from services.router.prefix_index.holders import DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.state.holdings import HoldingsTable
from simulator.model.loads import Integers


def block_keys(blocks: int) -> list[bytes]:
    """Return a key for each of `blocks` blocks."""
    return [block.to_bytes(16, "little") for block in range(blocks)]


class Holdings:
    """Production's index, updated with blocks by number.

    A worker's cache is its engine's pages and its store's memory as one: where `stores`, the index
    is told of both, since only stores send blocks.
    """

    def __init__(self, index: PrefixIndex, keys: Sequence[bytes], *, stores: bool) -> None:
        self.index = index
        self._keys = keys
        self._stores = stores
        self._ids: list[tuple[str, str]] = []
        self._table = HoldingsTable(self._ids, {})

    def keys(self, blocks: Iterable[int]) -> list[bytes]:
        """Return the keys of blocks."""
        keys = self._keys
        return [keys[block] for block in blocks]

    def add(self, worker: int, blocks: Iterable[int]) -> None:
        """Record blocks added to a worker."""
        keys = self.keys(blocks)
        self.index.add_blocks(worker_id(worker), ENGINE, keys)
        if self._stores:
            self.index.add_blocks(store_id(worker), DRAM, keys)

    def remove(self, worker: int, blocks: Iterable[int]) -> None:
        """Record blocks evicted from a worker."""
        keys = self.keys(blocks)
        self.index.remove_blocks(worker_id(worker), ENGINE, keys)
        if self._stores:
            self.index.remove_blocks(store_id(worker), DRAM, keys)

    def depths(self, chain: Iterable[int], workers: int) -> Integers:
        """Return how many leading blocks of a chain each of the first workers has."""
        match = self.index.match(self.keys(chain))
        if not match.runs:
            return np.zeros(workers, np.int64)
        if len(self._ids) != workers:
            self._ids = [(worker_id(worker), "") for worker in range(workers)]
            self._table = HoldingsTable(self._ids, {})
        blocks = np.array([blocks for _, blocks in match.runs], float)
        depths: Integers = (blocks @ self._table.of(match).kinds[:, 0]).astype(np.int64)
        return depths


def worker_id(worker: int) -> str:
    """Return the instance ID of a worker."""
    return f"worker-{worker}"


def store_id(worker: int) -> str:
    """Return the instance ID of a worker's store."""
    return f"store-{worker}"
