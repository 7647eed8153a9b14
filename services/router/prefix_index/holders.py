"""Bits of the prefix index: each (holder, tier) that lives owns one."""

from dataclasses import dataclass, field

from baton.internal.v1 import kvevents_pb2

ENGINE = kvevents_pb2.TIER_ENGINE
DRAM = kvevents_pb2.TIER_DRAM
DISK = kvevents_pb2.TIER_DISK
TIERS: tuple[int, ...] = (ENGINE, DRAM, DISK)


@dataclass(slots=True)
class Slot:
    """One bit, and the keys whose mask contains it."""

    bit: int
    keys: set[bytes] = field(default_factory=set)


class SlotTable:
    """The live slots by (holder, tier), and bits for new ones."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], Slot] = {}
        self._free_bits: list[int] = []
        self._bits_made = 0
        self.live_bits = 0
        self.store_bits = 0
        """Live bits of stores: every tier but engine pages."""

    def get(self, holder: str, tier: int) -> Slot | None:
        """The live slot of a holder's tier."""
        return self._slots.get((holder, tier))

    def bits(self, holder: str, tier: int) -> int:
        """The bit of a holder's tier, 0 where it has none."""
        slot = self._slots.get((holder, tier))
        return slot.bit if slot is not None else 0

    def holder_bits(self, holder: str) -> int:
        """The bits of all tiers of a holder."""
        return sum(self.bits(holder, tier) for tier in TIERS)

    def holders(self, bits: int) -> set[str]:
        """The holders that own any of these bits."""
        return {holder for (holder, _), slot in self._slots.items() if slot.bit & bits}

    def enliven(self, holder: str, tier: int) -> Slot:
        """Give a holder's tier, which had none, a slot with a bit that nothing else uses."""
        if self._free_bits:
            bit = self._free_bits.pop()
        else:
            bit = 1 << self._bits_made
            self._bits_made += 1
        slot = self._slots[holder, tier] = Slot(bit)
        self.live_bits |= bit
        if tier != ENGINE:
            self.store_bits |= bit
        return slot

    def bury(self, holder: str, tier: int) -> Slot | None:
        """Take the slot of a holder's tier away; its bit stays in use until `free`."""
        slot = self._slots.pop((holder, tier), None)
        if slot is not None:
            self.live_bits &= ~slot.bit
            self.store_bits &= ~slot.bit
        return slot

    def free(self, slot: Slot) -> None:
        """No key's mask contains this slot's bit any more: it may be used again."""
        self._free_bits.append(slot.bit)
