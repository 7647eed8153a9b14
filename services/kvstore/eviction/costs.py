"""What objects cost to compute again, beside each other."""

_KEEP = 0.999
"""Share of the past that counts beside a new object."""


class Costs:
    """Turns seconds per object into a number around 1: a moving mean per byte is the measure."""

    def __init__(self) -> None:
        self._mean = 0.0

    def relative(self, seconds: float, size: int, count: int) -> float:
        """`Entry.cost` of `count` objects of `size` bytes each; 1 where `seconds` is 0: not known.

        `seconds` is of one of them.
        """
        if not seconds:
            return 1.0
        cost = seconds / size
        keep = _KEEP**count
        self._mean = keep * self._mean + (1 - keep) * cost if self._mean else cost
        return cost / self._mean
