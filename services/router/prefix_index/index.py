"""Where KV blocks are, as far as events have told: a prediction, never a promise.

A block's key maps to a bitmask of holders: stores by tier (DRAM, disk) and workers (engine pages).
A chain is matched by one dict look-up per block, and blocks with equal masks are folded into runs,
so that what follows costs by run and not by block. Keys contain their layout (through the chain's
root), hence layouts need no index of their own.

Dropping a holder is O(1): its bits leave the live ones at once, and `sweep` takes its keys out in
small pieces. A million blocks of one holder each take about 100 MB beside their keys.
"""

from collections.abc import Iterable

from services.router.prefix_index.holders import TIERS, Slot, SlotTable
from services.router.prefix_index.match import Match


class PrefixIndex:
    """Keys to holders. One loop owns it."""

    def __init__(self) -> None:
        self._masks: dict[bytes, int] = {}
        self._slots = SlotTable()
        self._dead: list[Slot] = []

    def __len__(self) -> int:
        """Distinct keys, those that await `sweep` included."""
        return len(self._masks)

    def match(self, keys: Iterable[bytes]) -> Match:
        """Fold a chain's leading held blocks into runs of equal holders."""
        masks = self._masks
        live = self._slots.live_bits
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
        return Match(self._slots, runs)

    def blocks(self, holder: str) -> int:
        """Blocks that a holder has, counted once per tier."""
        slots = (self._slots.get(holder, tier) for tier in TIERS)
        return sum(len(slot.keys) for slot in slots if slot is not None)

    def stored(self, holder: str, tier: int, keys: Iterable[bytes]) -> None:
        """Blocks became readable in a tier. Repeats change nothing, nor do tiers of later days."""
        if tier not in TIERS:
            return
        slot = self._slots.get(holder, tier) or self._slots.enliven(holder, tier)
        masks = self._masks
        bit = slot.bit
        for key in keys:
            masks[key] = masks.get(key, 0) | bit
            slot.keys.add(key)

    def evicted(self, holder: str, tier: int, keys: Iterable[bytes]) -> None:
        """Blocks are gone from a tier. Unknown ones change nothing."""
        slot = self._slots.get(holder, tier)
        if slot is not None:
            known = slot.keys.intersection(keys)
            slot.keys.difference_update(known)
            self._drop(slot, known)

    def remove(self, holder: str) -> None:
        """Forget a holder at once; `sweep` does the work later."""
        for tier in TIERS:
            slot = self._slots.bury(holder, tier)
            if slot is not None:
                self._dead.append(slot)

    def sweep(self, limit: int) -> bool:
        """Take at most `limit` keys of forgotten holders out; answers whether some are left."""
        while self._dead and limit > 0:
            slot = self._dead[-1]
            take = min(limit, len(slot.keys))
            limit -= take
            self._drop(slot, [slot.keys.pop() for _ in range(take)])
            if not slot.keys:
                self._dead.pop()
                self._slots.free(slot)
        return bool(self._dead)

    def _drop(self, slot: Slot, keys: Iterable[bytes]) -> None:
        masks = self._masks
        keep = ~slot.bit
        for key in keys:
            rest = masks[key] & keep
            if rest:
                masks[key] = rest
            else:
                del masks[key]
