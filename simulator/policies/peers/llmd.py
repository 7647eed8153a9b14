"""The scorers of llm-d's inference scheduler: prefix cache, queue and KV utilization, 3 : 2 : 2."""

import numpy as np

from simulator.policies.base import View
from simulator.request import Request, WorkerChoice

PREFIX, QUEUE, UTILIZATION = 3.0, 2.0, 2.0


class LlmD:
    """Takes the highest weighted sum of scores from 0 to 1."""

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the worker with the highest score."""
        prefix = view.depths() / max(1, len(request.chain))
        most, least = view.waiting.max(), view.waiting.min()
        queue = (most - view.waiting) / (most - least) if most > least else np.ones(len(prefix))
        capacity = max(1, view.config.cache_tokens // view.block_tokens)
        used = np.minimum(1.0, view.blocks / capacity)
        return WorkerChoice(
            view.lowest(-(PREFIX * prefix + QUEUE * queue + UTILIZATION * (1 - used)))
        )
