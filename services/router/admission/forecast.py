"""Predicts when workers will have computed a given amount, from what each has queued already."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Forecast:
    """Workers that always take the next prompt once they are idle.

    Args:
        queues: seconds of queued computation of each worker; at least one worker.
    """

    def __init__(self, queues: Iterable[float]) -> None:
        self._queues = sorted(queues)
        sums = [0.0, *accumulate(self._queues)]
        self._sums = sums
        # The work after which every worker ends when the k-th does: k of them compute until then.
        self._work = [queue * k - sums[k] for k, queue in enumerate(self._queues)]

    def begins(self, work: float) -> float:
        """Return the seconds until a worker begins what follows the given work.

        Args:
            work: seconds of computation ahead of it, in total.
        """
        workers = max(1, bisect_right(self._work, work))
        # Sums are rounded: no worker begins before the first one is idle.
        return max(self._queues[0], (self._sums[workers] + work) / workers)
