"""Preble's E2: exploit a prefix where it is most of the prompt, else explore (ICLR '25).

Its load is measured over a window of GPU time; here the known wait is used instead.
"""

import numpy as np

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

EXPLOIT_SHARE = 0.5
"""Share of the prompt that must be cached for its holders to be preferred."""
SLACK_SECONDS, SLACK_FACTOR = 2.0, 1.5
"""A holder whose wait exceeds the least wait by more than this is no longer preferred."""
EVICTION_SECONDS = 0.02
"""Cost per block that a prompt adds to a full cache."""


class Preble:
    """Chooses the least busy holder of the longest prefix, or the worker with the least cost."""

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the worker to exploit, or to explore."""
        depths, blocks = view.depths(), len(request.chain)
        best = int(depths.max())
        if best > EXPLOIT_SHARE * blocks:
            holder = view.lowest(np.where(depths == best, view.wait, np.inf))
            if view.wait[holder] <= SLACK_SECONDS + SLACK_FACTOR * view.wait.min():
                return WorkerChoice(holder)
            return WorkerChoice(view.lowest(view.finish(request, depths, depths)))
        evicted = EVICTION_SECONDS * (blocks - depths) * view.full
        return WorkerChoice(view.lowest(view.finish(request, depths, depths) + evicted))
