"""Statistics of measurements. Only the standard library, as environments of peers import it too."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of 100 do not exceed, by nearest rank; nan for none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]


def auc(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return how often a value of `ones` is larger than one of `others`; equal values count half.

    This is Mann and Whitney's U over the number of pairs: 0.5 means that the two are
    indistinguishable.
    """
    ordered = sorted(others)
    doubled = sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in ones)
    return doubled / (2 * len(ones) * len(ordered))
