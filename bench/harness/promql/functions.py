"""Functions over the samples of one series, and over the values of a group."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from bench.harness.promql.series import Sample

OverTime = Callable[[Sequence[Sample], float, float], float | None]
"""Of samples, the range in seconds, and the end of the range; None: no result."""


def increase(samples: Sequence[Sample], seconds: float, end: float) -> float | None:
    """Return the increase of a counter, extrapolated to the range as Prometheus does.

    Source: `extrapolatedRate` in Prometheus' promql/functions.go.
    """
    if len(samples) < 2:
        return None
    increases = [max(0.0, b - a) if b >= a else b for (_, a), (_, b) in pairwise(samples)]
    covered = samples[-1][0] - samples[0][0]
    average = covered / (len(samples) - 1)
    before, after = samples[0][0] - (end - seconds), end - samples[-1][0]
    total = sum(increases)
    before = before if before < 1.1 * average else average / 2
    after = after if after < 1.1 * average else average / 2
    if total > 0 and samples[0][1] >= 0:
        before = min(before, covered * samples[0][1] / total)  # a counter is never below 0
    return total * (covered + before + after) / covered


def rate(samples: Sequence[Sample], seconds: float, end: float) -> float | None:
    """Return the increase per second."""
    found = increase(samples, seconds, end)
    return None if found is None else found / seconds


def _values(function: Callable[[Sequence[float]], float]) -> OverTime:
    return lambda samples, _seconds, _end: function([value for _, value in samples])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


OVER_TIME: dict[str, OverTime] = {
    "last_over_time": _values(lambda values: values[-1]),
    "min_over_time": _values(min),
    "max_over_time": _values(max),
    "avg_over_time": _values(_mean),
    "sum_over_time": _values(math.fsum),
    "rate": rate,
    "increase": increase,
}
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "min": min,
    "max": max,
    "avg": _mean,
    "count": lambda values: float(len(values)),
}
