"""Where KV blocks are, as KV events report: a prediction, never a promise.

A block's key maps to a bitmask of holders: stores by tier (DRAM, disk) and workers (engine pages).
A chain is matched by one dict look-up per block, and blocks with equal masks are folded into runs,
so that what follows costs by run and not by block. Keys contain their layout (through the chain's
root), hence layouts need no index of their own.

Removing a holder is O(1): its bits leave the live ones at once, and `sweep` takes its keys out in
small pieces. A million blocks of one holder each take about 100 MB beside their keys.
"""

from collections.abc import Collection, Iterable

from services.router.prefix_index.holders import TIERS, HolderTable, HolderTier
from services.router.prefix_index.match import Match


class PrefixIndex:
    """Keys to holders. One loop owns it."""

    def __init__(self) -> None:
        self._masks: dict[bytes, int] = {}
        self._holders = HolderTable()
        self._unswept: list[HolderTier] = []

    def __len__(self) -> int:
        """Return the number of distinct keys, those that await `sweep` included."""
        return len(self._masks)

    def match(self, keys: Iterable[bytes]) -> Match:
        """Fold a chain's leading held blocks into runs of equal holders."""
        masks = self._masks
        live = self._holders.live_bits
        runs = []
        previous = -1
        count = 0
        for key in keys:
            mask = masks.get(key, 0)
            if mask == previous:
                count += 1
                continue
            if count:
                runs.append((previous, count))
            count = 0
            if not mask & live:
                break
            previous = mask
            count = 1
        if count:
            runs.append((previous, count))
        return Match(self._holders, runs)

    def add_blocks(self, holder: str, tier: int, keys: Collection[bytes]) -> None:
        """Record blocks as readable in a tier; repeats and unknown tiers change nothing."""
        if tier not in TIERS:
            return
        held = self._holders.get(holder, tier) or self._holders.allocate(holder, tier)
        masks = self._masks
        bit = held.bit
        mask_of = masks.get
        for key in keys:
            masks[key] = mask_of(key, 0) | bit
        held.keys.update(keys)

    def remove_blocks(self, holder: str, tier: int, keys: Iterable[bytes]) -> None:
        """Record blocks as evicted from a tier. Unknown ones change nothing."""
        held = self._holders.get(holder, tier)
        if held is not None:
            known = held.keys.intersection(keys)
            held.keys.difference_update(known)
            self._clear_bit(held, known)

    def remove_holder(self, holder: str) -> None:
        """Forget a holder at once; `sweep` does the work later."""
        for tier in TIERS:
            removed = self._holders.release(holder, tier)
            if removed is not None:
                self._unswept.append(removed)

    def sweep(self, limit: int) -> bool:
        """Take at most `limit` keys of removed holders out; return whether some are left."""
        while self._unswept and limit > 0:
            tier = self._unswept[-1]
            take = min(limit, len(tier.keys))
            limit -= take
            self._clear_bit(tier, [tier.keys.pop() for _ in range(take)])
            if not tier.keys:
                self._unswept.pop()
                self._holders.free(tier)
        return bool(self._unswept)

    def _clear_bit(self, tier: HolderTier, keys: Iterable[bytes]) -> None:
        masks = self._masks
        keep = ~tier.bit
        for key in keys:
            rest = masks[key] & keep
            if rest:
                masks[key] = rest
            else:
                del masks[key]
