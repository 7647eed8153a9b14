"""The bits of the prefix index: each tier of each live holder owns one."""

from services.router.prefix_index.holder_sets import HolderSets

# Tier numbers of KV events.
ENGINE = 1
"""A worker's own pages."""
DRAM = 2
DISK = 3
TIERS: tuple[int, ...] = (ENGINE, DRAM, DISK)

_MAX_KEPT = 4096


class HolderTier:
    """One tier of one holder: its bit, and the transitions of sets with and without it."""

    __slots__ = ("added", "bit", "removed")

    def __init__(self, sets: HolderSets, bit: int) -> None:
        self.bit = bit
        self.added = sets.adding(bit)
        self.removed = sets.removing(bit)


class HolderTable:
    """Live tiers by (holder, tier), and bits for new ones. Owned by one event loop."""

    def __init__(self, sets: HolderSets) -> None:
        self._sets = sets
        self._tiers: dict[tuple[str, int], HolderTier] = {}
        self.bits: dict[int, dict[str, int]] = {tier: {} for tier in TIERS}
        """Bits by tier and holder."""
        self.version = 0
        """Incremented whenever a bit comes to mean another holder's tier, or none."""
        self.bits_made = 0
        """More than the position of any bit."""
        self._owners: dict[int, str] = {}
        """Holders by live bit."""
        self._free_bits: list[int] = []
        self._stores: dict[int, tuple[tuple[str, int], ...]] = {}
        self._with_disk: dict[int, int] = {}
        self.live_bits = 0
        self.store_bits = 0
        """Live bits of stores: all tiers except engine pages."""

    def get(self, holder: str, tier: int) -> HolderTier | None:
        """Return the live tier of a holder."""
        return self._tiers.get((holder, tier))

    def holder_bits(self, holder: str) -> int:
        """Return the bits of all tiers of a holder."""
        return sum(bits.get(holder, 0) for bits in self.bits.values())

    def owner(self, bit: int) -> str:
        """Return the holder that owns a live bit."""
        return self._owners[bit]

    def holders(self, bits: int) -> set[str]:
        """Return the holders that own any of these bits, which are live."""
        found = set()
        while bits:
            bit = bits & -bits
            found.add(self._owners[bit])
            bits ^= bit
        return found

    def stores(self, bits: int) -> tuple[tuple[str, int], ...]:
        """Return the stores that own any of these live bits, each with all of its own bits.

        Results are cached while no holder is added or removed, as matches meet few sets.
        """
        of_stores = bits & self.store_bits
        known = self._stores.get(of_stores)
        if known is None:
            if len(self._stores) >= _MAX_KEPT:
                self._stores.clear()
            known = tuple((one, self.holder_bits(one)) for one in self.holders(of_stores))
            self._stores[of_stores] = known
        return known

    def with_disk(self, bits: int) -> int:
        """Return live bits with those of the disks of stores whose memory is among them.

        Cached like `stores`.
        """
        known = self._with_disk.get(bits)
        if known is None:
            if len(self._with_disk) >= _MAX_KEPT:
                self._with_disk.clear()
            known, in_memory = bits, self.bits[DRAM]
            for store, bit in self.bits[DISK].items():
                if bits & in_memory.get(store, 0):
                    known |= bit
            self._with_disk[bits] = known
        return known

    def allocate(self, holder: str, tier: int) -> HolderTier:
        """Assign an unused bit to a tier of a holder that has none."""
        if self._free_bits:
            bit = self._free_bits.pop()
        else:
            bit = 1 << self.bits_made
            self.bits_made += 1
        made = self._tiers[holder, tier] = HolderTier(self._sets, bit)
        self.bits[tier][holder] = bit
        self._owners[bit] = holder
        self.version += 1
        self._stores.clear()
        self._with_disk.clear()
        self.live_bits |= bit
        if tier != ENGINE:
            self.store_bits |= bit
        return made

    def release(self, holder: str, tier: int) -> int:
        """Remove a holder's tier from the live ones, and return its bit; 0: it has none.

        The bit is not reused before `free`.
        """
        removed = self._tiers.pop((holder, tier), None)
        if removed is None:
            return 0
        del self.bits[tier][holder]
        del self._owners[removed.bit]
        self.version += 1
        self._stores.clear()
        self._with_disk.clear()
        self._sets.forget(removed.added, removed.removed)
        self.live_bits &= ~removed.bit
        self.store_bits &= ~removed.bit
        return removed.bit

    def free(self, bits: int) -> None:
        """Make bits of released tiers reusable: no key's set contains them any more."""
        while bits:
            bit = bits & -bits
            self._free_bits.append(bit)
            bits ^= bit
