"""The interface of other routers' policies, and their view of a cluster.

They see more than such routers do: predicted seconds of work, and every worker's speed. Compared
with Baton, they lack control of the order of waiting prompts, not information.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.config import ClusterConfig
from simulator.model.loads import Floats, Integers
from simulator.request import Request, WorkerChoice

_TIE = 1e-6


@dataclass(frozen=True, slots=True)
class View:
    """A cluster as one placement sees it; valid until `Baseline.choose` returns.

    Arrays have an entry per worker that computes prompts.
    """

    config: ClusterConfig
    block_tokens: int
    rates: Floats
    """Prompt tokens per second of each worker."""
    wait: Floats
    """Seconds of computation before each would start the prompt."""
    transfer_wait: Floats
    """Seconds until a transfer to each would start."""
    waiting: Integers
    """Prompts that each has to compute."""
    blocks: Integers
    """Blocks of prompts of unfinished requests."""
    full: NDArray[np.bool_]
    """Whether each cache must evict for additional blocks."""
    depths: Callable[[], Integers]
    """Returns the leading blocks of the prompt that each has."""
    draw: Callable[[], Floats]
    """Returns random numbers from 0 to 1, one per worker, to break ties."""

    @property
    def wait_blocks(self) -> Floats:
        """Blocks that each has to compute before it would start the prompt."""
        blocks: Floats = self.wait * self.config.costs.prefill_rate / self.block_tokens
        return blocks

    def work(self, request: Request, blocks: Integers) -> Floats:
        """Return the seconds to compute a prompt with `blocks` leading blocks cached."""
        tokens = np.maximum(request.prompt_tokens - blocks * self.block_tokens, 1)
        seconds: Floats = tokens / self.rates
        quadratic = self.config.costs.quadratic_tokens
        if quadratic:
            seconds = seconds * (1 + (request.prompt_tokens - tokens / 2) / quadratic)
        return seconds

    def finish(self, request: Request, depths: Integers, blocks: Integers) -> Floats:
        """Return the seconds until each would have computed a prompt, after transferring missing
        blocks.

        Args:
            request: the request.
            depths: leading blocks that each has.
            blocks: leading blocks that each must have when it starts.
        """
        brought = np.maximum(blocks - depths, 0) * self.block_tokens
        rate = self.config.costs.transfer_rate
        moving = self.transfer_wait + brought / rate if rate else self.transfer_wait * 0
        ready = np.where(brought > 0, moving, 0.0)
        seconds: Floats = np.maximum(self.wait, ready) + self.work(request, blocks)
        return seconds

    def lowest(self, scores: NDArray[np.float64]) -> int:
        """Return the worker with the lowest score; ties are broken at random."""
        return int((scores + _TIE * self.draw()).argmin())


class Baseline(Protocol):
    """Chooses a worker for each request. It may be stateful: one is created for each run."""

    def choose(self, request: Request, view: View) -> WorkerChoice:
        """Return the placement of a request."""
