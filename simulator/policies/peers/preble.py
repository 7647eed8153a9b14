"""Preble's E2: exploit a prefix where it is most of the prompt, else explore (ICLR '25).

Its load is measured over a window of GPU time; here the wait is known, and takes that place.
"""

import numpy as np

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

EXPLOIT_SHARE = 0.5
"""Of the prompt that must be cached for its holders to be preferred."""
SLACK_SECONDS, SLACK_FACTOR = 2.0, 1.5
"""A holder whose wait exceeds the least one's by more than this is not preferred any more."""
EVICTION_SECONDS = 0.02
"""Per block that a prompt adds to a full cache."""


class Preble:
    """Takes the least busy of the longest prefix's holders, or the least cost of all workers."""

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
