"""The operator's policy for tenants' tiers. Plain values."""

import math
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TierPolicy:
    """How tiers share the workers' computing, by rank; 0 is the highest."""

    weights: tuple[float, ...] = (16.0, 4.0, 1.0)
    """Weights; each waiting tier receives its weight's part."""
    floors: tuple[float, ...] = (0.5, 0.1, 0.04)
    """Least part that a tier receives while it waits, whatever the weights are."""
    strict: bool = False
    """Whether a higher tier always goes first; weights and floors are then ignored."""
    shares: tuple[float, ...] = field(init=False)
    """Part of each tier while all of them wait, above 0. Each of the waiting tiers receives its
    part of the sum of theirs, which is at least its floor."""

    def __post_init__(self) -> None:
        """Reject invalid values, and compute the shares."""
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
        if total == 1 and not all(floors):
            raise ValueError("the floors add up to 1, and a tier has none: its share would be 0")
        object.__setattr__(self, "shares", _shares(weights, floors))

    def share(self, tier: int) -> float:
        """Return the part of a tier; an unknown rank gets that of the last one."""
        return self.shares[min(tier, len(self.shares) - 1)]


def _shares(weights: tuple[float, ...], floors: tuple[float, ...]) -> tuple[float, ...]:
    """Return the weights' parts, with those below their floors raised to them."""
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
