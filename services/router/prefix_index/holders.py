"""The bits of the prefix index: each tier of each live holder owns one."""

from dataclasses import dataclass, field

# The numbers that KV events give them.
ENGINE = 1
"""A worker's own pages."""
DRAM = 2
DISK = 3
TIERS: tuple[int, ...] = (ENGINE, DRAM, DISK)


@dataclass(slots=True)
class HolderTier:
    """One tier of one holder: its bit, and the keys whose mask contains that bit."""

    bit: int
    keys: set[bytes] = field(default_factory=set)


class HolderTable:
    """The live tiers by (holder, tier), and bits for new ones. One loop owns it."""

    def __init__(self) -> None:
        self._tiers: dict[tuple[str, int], HolderTier] = {}
        self._free_bits: list[int] = []
        self._bits_made = 0
        self.live_bits = 0
        self.store_bits = 0
        """Live bits of stores: every tier but engine pages."""

    def get(self, holder: str, tier: int) -> HolderTier | None:
        """Return the live tier of a holder."""
        return self._tiers.get((holder, tier))

    def bits(self, holder: str, tier: int) -> int:
        """Return the bit of a holder's tier, 0 where it has none."""
        found = self._tiers.get((holder, tier))
        return found.bit if found is not None else 0

    def holder_bits(self, holder: str) -> int:
        """Return the bits of all tiers of a holder."""
        return sum(self.bits(holder, tier) for tier in TIERS)

    def holders(self, bits: int) -> set[str]:
        """Return the holders that own any of these bits."""
        return {holder for (holder, _), tier in self._tiers.items() if tier.bit & bits}

    def allocate(self, holder: str, tier: int) -> HolderTier:
        """Give a holder's tier, which has none, a bit that nothing else uses."""
        if self._free_bits:
            bit = self._free_bits.pop()
        else:
            bit = 1 << self._bits_made
            self._bits_made += 1
        made = self._tiers[holder, tier] = HolderTier(bit)
        self.live_bits |= bit
        if tier != ENGINE:
            self.store_bits |= bit
        return made

    def release(self, holder: str, tier: int) -> HolderTier | None:
        """Remove a holder's tier from the live ones; its bit is not reused before `free`."""
        removed = self._tiers.pop((holder, tier), None)
        if removed is not None:
            self.live_bits &= ~removed.bit
            self.store_bits &= ~removed.bit
        return removed

    def free(self, tier: HolderTier) -> None:
        """Let the bit of a released tier be reused: no key's mask contains it any more."""
        self._free_bits.append(tier.bit)
