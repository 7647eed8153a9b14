"""What objects cost to compute again, beside each other."""

_KEEP = 0.999
"""Share of the past that counts beside a new object."""


class Costs:
    """Turns seconds per object into a number around 1: a moving mean per byte is the measure."""

    def __init__(self) -> None:
        self._mean = 0.0

    def relative(self, seconds: float, size: int) -> float:
        """`Entry.cost` of an object of `size` bytes; 1 where `seconds` is 0, for not known."""
        if not seconds:
            return 1.0
        cost = seconds / size
        self._mean = _KEEP * self._mean + (1 - _KEEP) * cost if self._mean else cost
        return cost / self._mean
