"""The cost function of Dynamo's KV router, at temperature 0.

Cost is blocks to compute plus blocks that streams hold: `full`. Of a pool that only computes
prompts it is blocks to compute: `prefill`. https://github.com/ai-dynamo/dynamo
"""

import numpy as np

from simulator.model.loads import Floats
from simulator.policies.base import View
from simulator.request import Request, WorkerChoice


class Dynamo:
    """Takes the lowest cost in blocks."""

    def __init__(self, *, full: bool) -> None:
        self._full = full

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the worker with the lowest cost."""
        blocks = len(request.chain)
        cost: Floats = np.maximum(view.wait_blocks + (blocks - view.depths()), 0.0)
        if self._full:
            cost = cost + view.blocks.astype(np.float64) + blocks
        return WorkerChoice(view.lowest(cost))
