"""What operators decide about tenants' tiers. Plain values."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """How tiers share what workers compute, by rank; 0 is the highest."""

    weights: tuple[float, ...] = (16.0, 4.0, 1.0)
    """Of tiers that wait each is given its weight's part."""
    floors: tuple[float, ...] = (0.5, 0.1, 0.04)
    """Part that a tier is given at the least while it waits, whatever the weights are."""
    strict: bool = False
    """Whether tiers go one after another, and weights and floors mean nothing."""
    shares: tuple[float, ...] = field(init=False)
    """Part of each tier while all of them wait. Of those that do wait, each has its part of the sum
    of theirs, which is its floor at the least."""

    def __post_init__(self) -> None:
        """Refuse values that mean nothing, and work out the shares."""
        weights, floors = self.weights, self.floors
        if not weights or len(weights) != len(floors):
            raise ValueError(
                f"{len(weights)} weights and {len(floors)} floors: each tier needs one of both"
            )
        for weight in weights:
            if not 0 < weight < math.inf:
                raise ValueError(f"a tier's weight {weight} is out of range: above 0")
        for floor in floors:
            if not 0 <= floor <= 1:
                raise ValueError(f"a tier's floor {floor} is out of range: 0 to 1")
        if (total := math.fsum(floors)) > 1:
            raise ValueError(f"the floors of all tiers add up to {total:g}: at most 1")
        object.__setattr__(self, "shares", _shares(weights, floors))

    def share(self, tier: int) -> float:
        """Return the part of a tier; one of a rank that is not known has the last one's."""
        return self.shares[min(tier, len(self.shares) - 1)]


def _shares(weights: tuple[float, ...], floors: tuple[float, ...]) -> tuple[float, ...]:
    """Return the weights' parts, where those below their floors are raised to them."""
    raised: set[int] = set()
    while True:
        rest = 1 - math.fsum(floors[tier] for tier in raised)
        unit = rest / (math.fsum(w for tier, w in enumerate(weights) if tier not in raised) or 1.0)
        below = {
            tier
            for tier, weight in enumerate(weights)
            if tier not in raised and unit * weight < floors[tier]
        }
        if not below:
            return tuple(
                floors[tier] if tier in raised else unit * weight
                for tier, weight in enumerate(weights)
            )
        raised |= below


DEFAULT_TIERS = TierPolicy()
