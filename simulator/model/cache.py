"""KV cache of a worker: blocks, with LRU eviction."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence


class BlockCache:
    """An LRU cache of block numbers with at most `capacity` blocks; None: unbounded."""

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._blocks)

    def __contains__(self, block: int) -> bool:
        """Return whether a block is cached."""
        return block in self._blocks

    def __iter__(self) -> Iterator[int]:
        """Yield the cached blocks, the least recently used first."""
        return iter(self._blocks)

    def prefix(self, chain: Sequence[int]) -> int:
        """Return how many leading blocks of a chain are cached."""
        blocks = self._blocks
        for length, block in enumerate(chain):
            if block not in blocks:
                return length
        return len(chain)

    def use(self, chain: Sequence[int]) -> tuple[list[int], list[int]]:
        """Make a chain's blocks the most recently used, its last one the latest.

        Returns:
            (blocks that were not cached before, blocks evicted for them).
        """
        blocks = self._blocks
        added = []
        for block in chain:
            if block in blocks:
                blocks.move_to_end(block)
            else:
                blocks[block] = None
                added.append(block)
        evicted: list[int] = []
        if self._capacity is not None:
            while len(blocks) > self._capacity:
                evicted.append(blocks.popitem(last=False)[0])
        return added, evicted
