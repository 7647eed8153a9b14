"""Where KV blocks are, as KV events report: a prediction, never a promise.

A block's key maps to the number of the set of its holders: stores by tier (DRAM, disk) and workers
(engine pages). A chain is matched by one dict look-up per block, and blocks with equal holders are
folded into runs, so that what follows costs by run and not by block. Keys contain their layout
(through the chain's root), hence layouts need no index of their own.

Removing a holder takes its bits out of the live ones at once, whatever it holds; `sweep` takes them
out of the sets of its blocks in small pieces. A block costs the same however many hold it.
"""

from collections.abc import Collection, Iterable
from itertools import repeat

from services.router.prefix_index.holder_sets import EMPTY, HolderSets
from services.router.prefix_index.holders import TIERS, HolderTable
from services.router.prefix_index.match import Match


class PrefixIndex:
    """Keys to holders. One loop owns it.

    Args:
        sets: those that its blocks may have; by default new ones.
    """

    def __init__(self, sets: HolderSets | None = None) -> None:
        self._set_of: dict[bytes, int] = {}
        """Numbers of sets of holders by key; never that of the empty set."""
        self._sets = HolderSets() if sets is None else sets
        self._holders = HolderTable(self._sets)
        self._released_bits = 0
        """Of holders that were removed since the sweep began."""
        self._swept_bits = 0
        """Of those that are being swept."""
        self._unswept: list[bytes] = []
        """Keys that may have them."""
        self._without_swept = self._sets.removing(0)

    def __len__(self) -> int:
        """Return the number of distinct keys, those that await `sweep` included."""
        return len(self._set_of)

    def match(self, keys: Iterable[bytes]) -> Match:
        """Fold a chain's leading held blocks into runs of equal holders."""
        set_of = self._set_of.get
        masks = self._sets.masks
        live = self._holders.live_bits
        runs: list[tuple[int, int]] = []
        previous = -1
        count = 0
        for key in keys:
            number = set_of(key, EMPTY)
            if number == previous:
                count += 1
                continue
            if count:
                runs.append((masks[previous], count))
            count = 0
            if not masks[number] & live:
                break
            previous = number
            count = 1
        if count:
            runs.append((masks[previous], count))
        return Match(self._holders, runs)

    def add_blocks(self, holder: str, tier: int, keys: Collection[bytes]) -> None:
        """Record blocks as readable in a tier; repeats and unknown tiers change nothing."""
        if tier not in TIERS:
            return
        held = self._holders.get(holder, tier) or self._holders.allocate(holder, tier)
        set_of = self._set_of
        # Without a step of Python per block: each is looked up just before it is written.
        before = map(set_of.get, keys, repeat(EMPTY))
        set_of.update(zip(keys, map(held.added.__getitem__, before), strict=True))

    def remove_blocks(self, holder: str, tier: int, keys: Iterable[bytes]) -> None:
        """Record blocks as evicted from a tier. Unknown ones change nothing."""
        held = self._holders.get(holder, tier)
        if held is not None:
            self._replace(keys, held.removed)

    def remove_holder(self, holder: str) -> None:
        """Forget a holder at once; `sweep` does the work later."""
        for tier in TIERS:
            self._released_bits |= self._holders.release(holder, tier)

    def sweep(self, limit: int) -> bool:
        """Take removed holders out of at most `limit` blocks; return whether some are left.

        It looks at every block, once for all holders that were removed before it began. Beginning
        lists the keys, and sets that no block has are looked for at the end, now and then: 10 to
        20 ms with a million blocks.
        """
        if not self._swept_bits and self._released_bits:
            self._swept_bits, self._released_bits = self._released_bits, 0
            self._unswept = list(self._set_of)
            self._without_swept = self._sets.removing(self._swept_bits)
        if self._swept_bits:
            keys = self._unswept[-limit:] if limit > 0 else []
            del self._unswept[len(self._unswept) - len(keys) :]
            self._replace(keys, self._without_swept)
            if not self._unswept:
                self._sets.forget(self._without_swept)
                self._holders.free(self._swept_bits)
                self._swept_bits = 0
        if self._sets.collectable:
            self._sets.collect(set(self._set_of.values()))
        return bool(self._swept_bits or self._released_bits)

    def _replace(self, keys: Iterable[bytes], after: dict[int, int]) -> None:
        """Put each known key's set of holders in the place of the one that it becomes."""
        set_of = self._set_of
        for key in keys:
            before = set_of.get(key)
            if before is None:
                continue
            number = after[before]
            if number:
                set_of[key] = number
            else:
                del set_of[key]
