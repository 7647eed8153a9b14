"""Algorithm 1 of the Mooncake paper (FAST '25): KV-aware scheduling with cache balancing."""

import numpy as np

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

BALANCING_THRESHOLD = 1.5


class Mooncake:
    """Takes the least predicted TTFT, with the longest prefix brought where it is much longer.

    A worker whose prefix is shorter than the longest one by more than the threshold brings the
    rest from the worker that has it.
    """

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the worker that would be done first, and what it brings."""
        depths = view.depths()
        best = int(depths.max())
        blocks = np.where(best > BALANCING_THRESHOLD * depths, best, depths)
        worker = view.lowest(view.finish(request, depths, blocks))
        return WorkerChoice(worker, int(blocks[worker]))
