"""Where KV blocks are, according to KV events: a prediction without guarantee.

A block's key maps to the number of the set of its holders: stores by tier (DRAM, disk) and workers
(engine pages). A chain is matched by one dict look-up per block, and blocks with equal holders are
folded into runs, so that later steps cost per run and not per block. Keys contain their layout
(through the chain's root), so layouts need no separate indexes. Layouts with several groups of
layers have the objects of groups beyond the first in tables of their own, made when one comes.

Removing a holder clears its bits in the live ones immediately, whatever it holds; `sweep` removes
them from the sets of its blocks in small pieces. A block costs the same for any number of holders.
"""

from collections.abc import Collection, Iterable
from itertools import chain

from baton.kv.cuts import CutRules
from baton.kv.keys import KEY_BYTES
from baton.kv.layout import GroupKind
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.table import BlockTable
from services.router.prefix_index.cut_match import CutMatch, GroupRuns
from services.router.prefix_index.holder_sets import HolderSets
from services.router.prefix_index.holders import TIERS, HolderTable
from services.router.prefix_index.match import Match

MAX_GROUPS = 64
"""Groups of layers beyond this number are ignored: models have fewer than ten."""


class PrefixIndex:
    """Keys to holders. Owned by one event loop.

    Args:
        sets: sets for its blocks; by default new ones.
        table: an empty one; by default a dict.
    """

    def __init__(self, sets: HolderSets | None = None, table: BlockTable | None = None) -> None:
        self._table = DictTable() if table is None else table
        self._tables = [self._table]
        """By group; `_table` is the first."""
        self._sets = HolderSets() if sets is None else sets
        self._holders = HolderTable(self._sets)
        self._released_bits = 0
        """Bits of holders removed since the sweep began."""
        self._swept_bits = 0
        """Bits of the holders being swept."""
        self._without_swept = self._sets.removing(0)

    def __len__(self) -> int:
        """Return the number of distinct blocks of all groups, including those that await
        `sweep`.
        """
        return sum(map(len, self._tables))

    def match(self, keys: Iterable[bytes]) -> Match:
        """Fold a chain's leading held blocks into runs of equal holders."""
        return self._match(self._table.match(keys))

    def match_packed(self, keys: bytes) -> Match:
        """Do what `match` does with packed keys, whose length is a multiple of 16."""
        return self._match(self._table.match_packed(keys))

    def match_cuts(self, keys: bytes, rules: CutRules, limit: int) -> CutMatch:
        """Find the longest cut of each holder, for a layout with groups.

        Args:
            keys: of the chain, packed.
            rules: of the layout.
            limit: most tokens of a cut.
        """
        masks, live = self._sets.masks, self._holders.live_bits
        prefix = min(len(keys) // KEY_BYTES, rules.blocks(limit))
        groups: list[GroupRuns] = []
        chain_keys = keys[: prefix * KEY_BYTES]
        for number, group in enumerate(rules.groups):
            found: list[tuple[int, int]] = []
            gaps = group.kind is not GroupKind.FULL
            if number < len(self._tables):
                found = self._tables[number].match_packed(chain_keys, gaps=gaps)
            runs = [(masks[holders] & live, blocks) for holders, blocks in found]
            groups.append(runs)
            if not gaps:  # full attention comes first, and bounds the others
                chain_keys = keys[: sum([blocks for _, blocks in runs]) * KEY_BYTES]
        return CutMatch(self._holders, rules, limit, groups)

    def add_blocks(self, holder: str, tier: int, keys: Collection[bytes], group: int = 0) -> None:
        """Record blocks of a group as readable in a tier; repeats and unknown tiers change
        nothing.
        """
        if tier not in TIERS or group >= MAX_GROUPS:
            return
        held = self._holders.get(holder, tier) or self._holders.allocate(holder, tier)
        while group >= len(self._tables):
            self._tables.append(self._table.empty())
        self._tables[group].add(keys, held.added)
        self._collect()

    def remove_blocks(self, holder: str, tier: int, keys: Iterable[bytes], group: int = 0) -> None:
        """Record blocks of a group as evicted from a tier. Unknown ones change nothing."""
        held = self._holders.get(holder, tier)
        if held is not None and group < len(self._tables):
            self._tables[group].replace(keys, held.removed)
            self._collect()

    def remove_holder(self, holder: str) -> None:
        """Forget a holder immediately; `sweep` does the work later."""
        for tier in TIERS:
            self._released_bits |= self._holders.release(holder, tier)

    def sweep(self, limit: int) -> bool:
        """Remove departed holders from at most `limit` blocks; return whether some are left.

        A sweep visits every block, once for all holders that were removed before it began.
        """
        if not self._swept_bits and self._released_bits:
            self._swept_bits, self._released_bits = self._released_bits, 0
            self._without_swept = self._sets.removing(self._swept_bits)
            for table in self._tables:
                table.begin_sweep()
        swept = self._without_swept
        if self._swept_bits and not any(table.sweep(limit, swept) for table in self._tables):
            self._sets.forget(self._without_swept)
            self._holders.free(self._swept_bits)
            self._swept_bits = 0
        self._collect()
        return bool(self._swept_bits or self._released_bits)

    def _collect(self) -> None:
        """Forget unused sets if they may be as many as the others; takes a pass over all blocks."""
        if self._sets.collectable:
            self._sets.collect(chain.from_iterable(table.used() for table in self._tables))

    def _match(self, numbers: list[tuple[int, int]]) -> Match:
        masks = self._sets.masks
        live = self._holders.live_bits
        runs = []
        for number, blocks in numbers:
            mask = masks[number]
            if not mask & live:
                break
            runs.append((mask, blocks))
        return Match(self._holders, runs)
