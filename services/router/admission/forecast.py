"""When workers will have computed so much, told from what each has to compute already."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Forecast:
    """Workers that always take the next prompt once they have nothing to compute.

    Args:
        queues: seconds that each worker computes what it has; at least one.
    """

    def __init__(self, queues: Iterable[float]) -> None:
        self._queues = sorted(queues)
        sums = [0.0, *accumulate(self._queues)]
        self._sums = sums
        # Work that makes every worker's end that of the k-th: k of them compute until then.
        self._work = [queue * k - sums[k] for k, queue in enumerate(self._queues)]

    def begins(self, work: float) -> float:
        """Return in how many seconds a worker begins what comes after so much work.

        Args:
            work: seconds of computing that go before, in sum.
        """
        workers = max(1, bisect_right(self._work, work))
        # Sums are rounded: nobody begins before the first one is idle.
        return max(self._queues[0], (self._sums[workers] + work) / workers)
