"""Algorithm 1 of the Mooncake paper (FAST '25): KV-aware scheduling with cache balancing."""

import numpy as np

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

BALANCING_THRESHOLD = 1.5


class Mooncake:
    """Chooses the least predicted TTFT, transferring the longest prefix if it is much longer.

    A worker whose prefix is shorter than the longest one by more than the threshold transfers the
    rest from the worker that has it.
    """

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the worker that would finish first, and the blocks to transfer."""
        depths = view.depths()
        best = int(depths.max())
        blocks = np.where(best > BALANCING_THRESHOLD * depths, best, depths)
        worker = view.lowest(view.finish(request, depths, blocks))
        return WorkerChoice(worker, int(blocks[worker]))
