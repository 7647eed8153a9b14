"""Who holds which page, and which pages hold which block.

A page is free, held by sequences (counted), or idle: held by nobody but still known under its key,
so that a later sequence may find the block. Idle pages are taken, the longest idle first, when no
free page is left. Time comes as an argument.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import inf

from baton.engine.events import CachedBlock


class PagePool:
    """Pages 0 to total - 1. Pure bookkeeping: the pages' bytes are elsewhere."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._holders = array("I", bytes(array("I").itemsize * total))
        self._untouched = 0
        """Pages from here on were never used."""
        self._free: list[int] = []
        self._idle: OrderedDict[int, float] = OrderedDict()
        """Since when, in order of that; of a chain, the end before what it continues."""
        self._page_of: dict[bytes, int] = {}
        self._block_in: dict[int, CachedBlock] = {}
        self._claims: dict[bytes, int] = {}
        self._forgotten: list[bytes] = []

    @property
    def available(self) -> int:
        """Pages that can be taken: free or idle."""
        return self.total - self._untouched + len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Pages that only the prefix cache holds."""
        return len(self._idle)

    def holders(self, page: int) -> int:
        """How many sequences hold a page."""
        return self._holders[page]

    # Holding.

    def allocate(self) -> int | None:
        """Take a page for one holder; None if all are held. Its old block is forgotten."""
        if self._free:
            page = self._free.pop()
        elif self._untouched < self.total:
            page = self._untouched
            self._untouched += 1
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            self._forget(page)
        else:
            return None
        self._holders[page] = 1
        return page

    def retain(self, page: int) -> None:
        """Add a holder to a page that is held or idle."""
        if self._holders[page] == 0:
            del self._idle[page]
        self._holders[page] += 1

    def release(self, pages: Sequence[int], now: float) -> None:
        """Drop one holder of each page. The end of a chain goes idle first, to be taken first."""
        for page in reversed(pages):
            # An array of unsigned refuses to go below zero.
            self._holders[page] -= 1
            if self._holders[page] == 0:
                if page in self._block_in:
                    self._idle[page] = now
                else:
                    self._free.append(page)

    # Finding.

    def match(self, keys: Iterable[bytes]) -> list[int]:
        """Pages of the longest known prefix of a chain. They are not held by this."""
        found = []
        for key in keys:
            page = self._page_of.get(key)
            if page is None:
                break
            found.append(page)
        return found

    def fits(self, found: Sequence[int], more: int) -> bool:
        """Whether `found` can be retained and `more` pages be allocated besides."""
        return self.available - sum(self._holders[page] == 0 for page in found) >= more

    def register(self, block: CachedBlock, page: int) -> None:
        """Make a held page findable, unless its block is known already; ends any claim on it."""
        self._claims.pop(block.key, None)
        if block.key not in self._page_of and page not in self._block_in:
            self._page_of[block.key] = page
            self._block_in[page] = block

    def idle_blocks(self, until: float) -> list[CachedBlock]:
        """Blocks that nobody has held since `until` or before; ends of chains first."""
        pages = takewhile(lambda page: self._idle[page] <= until, self._idle)
        return [self._block_in[page] for page in pages]

    def evict_idle(self, keys: Iterable[bytes] | None = None, until: float = inf) -> int:
        """Forget blocks that nobody has held since `until` or before; answers how many.

        `keys` says which, None all; others than such blocks are left alone.
        """
        chosen = list(self._idle) if keys is None else map(self._page_of.get, keys)
        dropped = 0
        for page in chosen:
            if page is not None and page in self._idle and self._idle[page] <= until:
                del self._idle[page]
                self._forget(page)
                self._free.append(page)
                dropped += 1
        return dropped

    def take_forgotten(self) -> tuple[bytes, ...]:
        """Keys whose blocks can no longer be found, since the last call."""
        forgotten, self._forgotten = tuple(self._forgotten), []
        return forgotten

    def _forget(self, page: int) -> None:
        key = self._block_in.pop(page).key
        del self._page_of[key]
        self._forgotten.append(key)

    # Blocks on their way.

    def claim(self, keys: Iterable[bytes], owner: int) -> None:
        """Say that sequence `owner` is computing or loading blocks; the last to say so counts."""
        self._claims.update(dict.fromkeys(keys, owner))

    def claimed_by(self, key: bytes) -> int | None:
        """The sequence that is busy with a block that is not known yet."""
        return self._claims.get(key)

    def unclaim(self, keys: Iterable[bytes], owner: int) -> None:
        """Take back what `owner` said and has not done."""
        for key in keys:
            if self._claims.get(key) == owner:
                del self._claims[key]

    @property
    def claims(self) -> int:
        """Blocks that somebody is busy with."""
        return len(self._claims)
