"""Statistics of measurements. Only the standard library: environments of peers import it too."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of 100 do not exceed, by nearest rank; nan of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def auc(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return how often one of `ones` is larger than one of `others`; equal ones count half.

    This is Mann and Whitney's U over the number of pairs: 0.5 where nothing tells them apart.
    """
    ordered = sorted(others)
    doubled = sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in ones)
    return doubled / (2 * len(ones) * len(ordered))
