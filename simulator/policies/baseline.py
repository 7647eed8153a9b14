"""A router that delegates to a policy and keeps the policy's view up to date."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.router.prefix_index.index import PrefixIndex
from simulator.config import ClusterConfig
from simulator.model.loads import Integers, Loads
from simulator.policies.base import Baseline, View
from simulator.policies.holdings import Holdings
from simulator.request import Request, WorkerChoice


class _Placement(NamedTuple):
    """A placement not yet included in a report; times in seconds."""

    number: int
    worker: int
    work: float
    at: float
    transfer: float
    blocks: int


class BaselineRouter:
    """Adds placements made since the last report to the reported loads.

    Args:
        policy: chooses workers.
        config: configuration of the cluster.
        keys: keys of all blocks.
        block_tokens: tokens of a block.
        seed: seed of the policy's random numbers.
        shared_cache: all workers share the first one's.
    """

    def __init__(
        self,
        policy: Baseline,
        config: ClusterConfig,
        keys: Sequence[bytes],
        block_tokens: int,
        seed: int,
        *,
        shared_cache: bool,
    ) -> None:
        self._shared_cache = shared_cache
        self._policy = policy
        self._config = config
        self._block_tokens = block_tokens
        self._holdings = Holdings(PrefixIndex(), keys, stores=False)
        self._held = np.zeros(config.all_workers, np.int64)
        self._capacity = max(1, config.cache_tokens // block_tokens)
        self._loads = Loads(config.all_workers)
        self._placed = 0
        self._unreported: deque[_Placement] = deque()
        self._draw = np.random.default_rng(seed)
        self._rates = np.array(
            [config.costs.prefill_rate * config.speed(one) for one in range(config.workers)]
        )

    @property
    def waiting(self) -> int:
        """Number of held requests: always 0, because each is placed immediately."""
        return 0

    def place(self, request: Request, now: float) -> WorkerChoice:
        """Return the policy's choice."""
        loads, workers = self._loads, self._config.workers
        known: list[Integers] = []

        def depths() -> Integers:
            if not known:
                known.append(self._depths(request))
            return known[0]

        view = View(
            self._config,
            self._block_tokens,
            self._rates,
            loads.wait(now)[:workers],
            np.maximum(loads.transfers_until[:workers] - now, 0.0),
            loads.waiting[:workers],
            loads.blocks[:workers],
            self._held[:workers] >= self._capacity,
            depths,
            lambda: self._draw.random(workers),
        )
        choice = self._policy.choose(request, view)
        placement = self._placement(request, choice, int(depths()[choice.worker]), now)
        self._unreported.append(placement)
        self._count(placement)
        return choice

    def add_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks added to a worker's cache."""
        self._held[worker] += len(blocks)
        self._holdings.add(worker, blocks)

    def remove_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks evicted from a worker's cache."""
        self._held[worker] -= len(blocks)
        self._holdings.remove(worker, blocks)

    def report(self, loads: Loads, placed: int, now: float) -> None:  # noqa: ARG002  # as Router has it
        """Record the load of all workers, plus placements made since it was measured."""
        self._loads = loads
        while self._unreported and self._unreported[0].number < placed:
            self._unreported.popleft()
        for placement in self._unreported:
            self._count(placement)

    def end(self, request: Request, now: float) -> None:
        """Do nothing: reports include it."""

    def _depths(self, request: Request) -> Integers:
        workers = self._config.workers
        if self._shared_cache:
            return np.full(workers, self._holdings.depths(request.chain, 1)[0])
        return self._holdings.depths(request.chain, workers)

    def _placement(
        self, request: Request, choice: WorkerChoice, own: int, now: float
    ) -> _Placement:
        costs, blocks = self._config.costs, max(own, choice.brought)
        tokens = max(1, request.prompt_tokens - blocks * self._block_tokens)
        speed = self._config.speed(choice.worker)
        self._placed += 1
        return _Placement(
            self._placed - 1,
            choice.worker,
            costs.prefill_seconds(tokens, request.prompt_tokens, speed),
            now,
            costs.transfer_seconds((blocks - own) * self._block_tokens) if blocks > own else 0.0,
            0 if self._config.pools else len(request.chain),
        )

    def _count(self, placement: _Placement) -> None:
        """Add a placement that is not yet included in a report."""
        loads, worker = self._loads, placement.worker
        loads.queued[worker] += placement.work
        loads.waiting[worker] += 1
        loads.blocks[worker] += placement.blocks
        if placement.transfer:
            begin = max(float(loads.transfers_until[worker]), placement.at)
            loads.transfers_until[worker] = begin + placement.transfer
