"""How long a step of a batch takes, by its size."""

import math

_KEEP = 0.999
"""Weight of what was observed a second ago; half is left after 12 minutes."""
_LONGEST = 600.0
"""Longest step, in seconds, that is one."""
_SPREAD = 0.25
"""Least variance of batch sizes from which a slope is read."""


class BatchStepTimes:
    """Seconds of a step as a + b · batch, by least squares over what replicas report.

    Older observations fade. Owned by one event loop.
    """

    def __init__(self) -> None:
        self._weight = 0.0
        self._batch = self._seconds = 0.0
        self._batch_square = self._product = 0.0
        """Weighted sums."""

    def fade(self, seconds: float) -> None:
        """Let time pass."""
        keep = _KEEP**seconds
        self._weight *= keep
        self._batch *= keep
        self._seconds *= keep
        self._batch_square *= keep
        self._product *= keep

    def observe(self, batch: int, seconds: float) -> None:
        """Add a report: one without a batch or a time is ignored."""
        if batch < 1 or not 0 < seconds < _LONGEST:
            return
        self._weight += 1
        self._batch += batch
        self._seconds += seconds
        self._batch_square += batch * batch
        self._product += batch * seconds

    def batch_within(self, target: float) -> float:
        """Return the largest batch whose step takes at most `target` seconds, at least 1.

        Infinite if nothing shows a limit: nothing was observed, larger batches take no longer, or
        batches of one size meet the target. Infinite, too, if a single stream misses it: then no
        number of replicas helps.
        """
        if self._weight < 1e-6:
            return math.inf
        batch, seconds = self._batch / self._weight, self._seconds / self._weight
        spread = self._batch_square / self._weight - batch * batch
        base, slope = 0.0, seconds / batch
        if spread >= _SPREAD:
            slope = max(0.0, (self._product / self._weight - batch * seconds) / spread)
            base = seconds - slope * batch
            if base < 0:
                base, slope = 0.0, seconds / batch
        elif seconds <= target:
            return math.inf
        if base + slope > target or slope * 1e6 < target:
            return math.inf
        return max(1.0, (target - base) / slope)
