"""Statistics of measurements. Only the standard library: environments of peers import it too."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of 100 do not exceed, by nearest rank; nan of nothing."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(percent / 100 * len(values)) - 1)]
