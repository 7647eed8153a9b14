"""Mapping of pages to the sequences that hold them and to the blocks in them.

A page is free, held by sequences (counted), or idle: not held but still known under its block's
key, so that a later sequence may find the block. When no free page is left, idle pages are
allocated, the longest idle first. Time is an argument.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from math import inf

from baton.engine.events import CachedBlock


class PagePool:
    """Pages 0 to total - 1, owned by the scheduler. Pure: the runner owns the pages' bytes."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._holders = array("I", bytes(array("I").itemsize * total))
        self._untouched = 0
        """First page that was never used."""
        self._free: list[int] = []
        self._idle: OrderedDict[int, float] = OrderedDict()
        """Idle pages with the time since which they are idle, in order; a chain's end comes
        first.
        """
        self._page_of: dict[bytes, int] = {}
        self._block_in: dict[int, CachedBlock] = {}
        self._claims: dict[bytes, int] = {}
        self._evicted: list[bytes] = []

    @property
    def available(self) -> int:
        """Pages that can be allocated: free or idle."""
        return self.total - self._untouched + len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Return the number of pages that only the prefix cache holds."""
        return len(self._idle)

    def holders(self, page: int) -> int:
        """Return the number of sequences that hold a page."""
        return self._holders[page]

    # Holding.

    def allocate(self) -> int | None:
        """Allocate a page to one holder; None if all are held. Its old block is evicted."""
        if self._free:
            page = self._free.pop()
        elif self._untouched < self.total:
            page = self._untouched
            self._untouched += 1
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            self._evict(page)
        else:
            return None
        self._holders[page] = 1
        return page

    def allocate_all(self, count: int) -> list[int]:
        """Allocate as many pages as `fits` reported to be available."""
        pages = [self.allocate() for _ in range(count)]
        found = [page for page in pages if page is not None]
        if len(found) < count:
            raise RuntimeError("the pool has fewer pages than it said")
        return found

    def retain(self, page: int) -> None:
        """Add a holder to a page that is held or idle."""
        if self._holders[page] == 0:
            del self._idle[page]
        self._holders[page] += 1

    def release(self, pages: Sequence[int], now: float) -> None:
        """Remove one holder of each page. A chain's end becomes idle, and is allocated, first."""
        for page in reversed(pages):
            # An unsigned array cannot go below zero.
            self._holders[page] -= 1
            if self._holders[page] == 0:
                if page in self._block_in:
                    self._idle[page] = now
                else:
                    self._free.append(page)

    # Finding.

    @property
    def page_of(self) -> Mapping[bytes, int]:
        """Pages by the keys of the blocks in them."""
        return self._page_of

    def match(self, keys: Iterable[bytes]) -> list[int]:
        """Return the pages of the longest known prefix of a chain, without holding them."""
        found = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            found.append(page)
        return found

    def fits(self, found: Sequence[int], more: int) -> bool:
        """Return whether `found` can be retained and `more` other pages be allocated."""
        return self.available - sum(self._holders[page] == 0 for page in found) >= more

    def register(self, block: CachedBlock, page: int) -> None:
        """Make a held page findable, unless its block is known already; ends any claim on it."""
        self._claims.pop(block.key, None)
        if block.key not in self._page_of and page not in self._block_in:
            self._page_of[block.key] = page
            self._block_in[page] = block

    def idle_blocks(self, until: float) -> list[CachedBlock]:
        """Return blocks that no sequence has held since `until` or before; chains' ends first."""
        pages = takewhile(lambda page: self._idle[page] <= until, self._idle)
        return [self._block_in[page] for page in pages]

    def evict_idle(self, keys: Iterable[bytes] | None = None, until: float = inf) -> int:
        """Evict blocks that no sequence has held since `until` or before; return how many.

        Only those of `keys`, unless it is None; all other blocks stay.
        """
        chosen = list(self._idle) if keys is None else map(self._page_of.get, keys)
        evicted = 0
        for page in chosen:
            if page is not None and page in self._idle and self._idle[page] <= until:
                del self._idle[page]
                self._evict(page)
                self._free.append(page)
                evicted += 1
        return evicted

    def take_evicted(self) -> tuple[bytes, ...]:
        """Return the keys of the blocks that were evicted since the last call."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    def _evict(self, page: int) -> None:
        key = self._block_in.pop(page).key
        del self._page_of[key]
        self._evicted.append(key)

    # Blocks that are being computed or loaded.

    def claim(self, keys: Iterable[bytes], owner: int) -> None:
        """Record that sequence `owner` computes or loads blocks; the last owner counts."""
        self._claims.update(dict.fromkeys(keys, owner))

    def claimed_by(self, key: bytes) -> int | None:
        """Return the sequence that computes or loads a block; None if there is none."""
        return self._claims.get(key)

    def unclaim(self, keys: Iterable[bytes], owner: int) -> None:
        """Drop the claims of `owner` on blocks that it has not registered."""
        for key in keys:
            if self._claims.get(key) == owner:
                del self._claims[key]

    @property
    def claims(self) -> int:
        """Return the number of claimed blocks."""
        return len(self._claims)
