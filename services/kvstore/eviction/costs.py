"""Relative costs of recomputing objects."""

_KEEP = 0.999
"""Weight of the mean when a new object is added."""


class Costs:
    """Turns seconds per object into a cost around 1, relative to a moving mean per byte.

    Owned by the store.
    """

    def __init__(self) -> None:
        self._mean = 0.0

    def relative(self, seconds: float, size: int, count: int) -> float:
        """Return `Entry.cost` of `count` objects of `size` bytes that took `seconds` each.

        It is 1 if `seconds` is 0: not known.
        """
        if not seconds:
            return 1.0
        cost = seconds / size
        keep = _KEEP**count
        self._mean = keep * self._mean + (1 - keep) * cost if self._mean else cost
        return cost / self._mean
