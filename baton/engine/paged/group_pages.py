"""Pages of sequences in every group of layers: found, taken, and given up once no longer needed.

A sequence has a table per group with one entry per block. Groups that do not need a block have no
page for it. All pages of a context are taken at once, also those that a window leaves behind while
the context is computed, so that a prompt that has begun never waits for pages. Pure: no clock.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from baton.engine.events import CachedBlock
from baton.engine.paged.page_pool import PagePool
from baton.engine.paged.sequence import NO_PAGE, LiveSequence
from baton.kv.cuts import cut_rules
from baton.kv.layout import Layout


@dataclass(frozen=True, slots=True)
class FoundPages:
    """Pages that a sequence would get."""

    cached_blocks: int
    """Leading blocks of the prefix cache's own cut."""
    ready_tokens: int
    """Leading tokens whose KV is in place, once the missing blocks are written."""
    tables: list[list[int | None]]
    """Leading entries per group: pages of the prefix cache, NO_PAGE, or None for new ones."""
    missing: tuple[tuple[int, ...], ...]
    """Blocks that the cut needs and the prefix cache lacks, per group."""


class GroupPages:
    """Pages per group. Owned by the scheduler, which is alone in using them.

    Args:
        layout: of the engine.
        pools: pages of each group.
    """

    def __init__(self, layout: Layout, pools: Sequence[PagePool]) -> None:
        self.rules = rules = cut_rules(layout)
        self._plain = not layout.groups
        """Whether all of KV is in one group of full attention, of which any prefix is a cut."""
        object_bytes = [group.block_bytes for group in rules.groups]
        self.pools = tuple(pools)
        total = sum(object_bytes)
        self._weights = tuple(size / total for size in object_bytes)
        self._bounded = tuple(g for g in range(len(rules.groups)) if not rules.is_full(g))

    @property
    def available(self) -> int:
        """Blocks for which there are pages in every group."""
        return min(pool.available for pool in self.pools)

    def find(self, sequence: LiveSequence) -> FoundPages:
        """Return the longest cut of the prefix cache, or the requested one if that is longer."""
        rules, keys = self.rules, sequence.keys
        if self._plain:
            pages = [] if sequence.scores_prompt else self.pools[0].match(keys)
            return FoundPages(len(pages), len(pages) * rules.block_tokens, [[*pages]], ())
        known_pages = [pool.page_of for pool in self.pools]
        limit = 0 if sequence.scores_prompt else len(sequence.tokens) - 1

        def has(group: int, block: int) -> bool:
            return block < len(keys) and keys[block] in known_pages[group]

        size = rules.block_tokens
        # On ends of blocks only: what is computed must not be written into others' pages.
        own = cut = rules.longest(has, limit - limit % size)
        if not sequence.started:  # later on nobody writes what the cache lacks
            cut = max(own, sequence.request.cut_tokens)
        tables: list[list[int | None]] = []
        missing = []
        for needed, page_of in zip(rules.needed(cut), known_pages, strict=True):
            first = min(needed.start, cut // size)  # the rest of a block is computed
            table: list[int | None] = [page_of.get(key) for key in keys[first : cut // size]]
            table += [None] * (rules.blocks(cut) - first - len(table))
            missing.append(tuple(block for block in needed if table[block - first] is None))
            tables.append([*[NO_PAGE] * first, *table])
        return FoundPages(rules.blocks(own), cut, tables, tuple(missing) if any(missing) else ())

    def fits(self, found: FoundPages, blocks: int, spare: int) -> bool:
        """Return whether there are pages for a context of that many blocks, and some to spare."""
        for pool, table in zip(self.pools, found.tables, strict=True):
            known = [page for page in table if page is not None and page != NO_PAGE]
            if not pool.fits(known, table.count(None) + blocks - len(table) + spare):
                return False
        return True

    def take(self, sequence: LiveSequence, found: FoundPages, blocks: int) -> None:
        """Give a sequence the pages of a context of that many blocks, for which `fits` holds."""
        tables = []
        for pool, table in zip(self.pools, found.tables, strict=True):
            for page in table:
                if page is not None and page != NO_PAGE:
                    pool.retain(page)
            new = iter(pool.allocate_all(table.count(None) + blocks - len(table)))
            tables.append([*(next(new) if page is None else page for page in table), *new])
        sequence.pages, *sequence.other_pages = tables
        sequence.page_weights = () if self._plain else self._weights
        sequence.missing = found.missing
        if not self._plain:
            sequence.cut_ready_tokens = found.ready_tokens
            sequence.behind = [table.count(NO_PAGE) for table in tables]

    def register(self, sequence: LiveSequence, first: int, end: int) -> None:
        """Make blocks of a sequence findable, in the groups that still have them."""
        tables = sequence.tables
        for index in range(first, end):
            previous = sequence.keys[index - 1] if index else b""
            block = CachedBlock(sequence.keys[index], previous)
            for pool, table in zip(self.pools, tables, strict=True):
                if table[index] != NO_PAGE:
                    pool.register(block, table[index])

    def keep(self, sequence: LiveSequence, cuts: Iterable[int], now: float) -> None:
        """Keep what these cuts need, and no longer what earlier ones did."""
        kept = {
            (group, block)
            for cut in cuts
            for group, blocks in enumerate(self.rules.needed(cut))
            for block in blocks
        }
        dropped, sequence.kept = sequence.kept - kept, kept
        if sequence.pages:
            for group in self._bounded:
                blocks = [
                    block for of, block in dropped if of == group and block < sequence.behind[group]
                ]
                self._leave(sequence, group, blocks, now)

    def leave_behind(self, sequence: LiveSequence, position: int, now: float) -> None:
        """Give up pages that are not needed to compute tokens from `position` on.

        The cut at the last full block before it stays, so that it can be published at any time.
        """
        if not self._bounded:
            return
        block_tokens = self.rules.block_tokens
        for group in self._bounded:
            needed = self.rules.first_needed(group, position - position % block_tokens)
            behind = sequence.behind[group]
            if needed > behind:
                sequence.behind[group] = needed
                leaving = range(behind, needed)
                self._leave(
                    sequence, group, [b for b in leaving if (group, b) not in sequence.kept], now
                )

    def release(self, sequence: LiveSequence, now: float) -> None:
        """Give up all pages of a sequence."""
        tables, sequence.pages, sequence.other_pages = sequence.tables, [], []
        for pool, table in zip(self.pools, tables, strict=False):
            pool.release([page for page in table if page != NO_PAGE], now)

    def _leave(self, sequence: LiveSequence, group: int, blocks: Sequence[int], now: float) -> None:
        table = sequence.tables[group]
        leaving = [block for block in blocks if table[block] != NO_PAGE]
        if not leaving:
            return
        sequence.charge(now)
        pages = [table[block] for block in leaving]
        for block in leaving:
            table[block] = NO_PAGE  # first: copying threads look whether they still hold it
        self.pools[group].release(pages, now)
