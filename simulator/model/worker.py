"""A simulated worker: a waiting line, a cache and an engine."""

from collections.abc import Callable

from simulator.model.cache import BlockCache
from simulator.model.costs import CostModel
from simulator.model.engine import SimulatedEngine
from simulator.model.events import EventLoop
from simulator.model.loads import Loads
from simulator.model.step_times import StepTimes
from simulator.model.waiting_line import Job, SimulatedWaitingLine
from simulator.request import Request


class SimulatedWorker:
    """Computes prompts one after another, and runs streams.

    Args:
        number: its entry in `loads`.
        speed: relative to the cost model.
        block_tokens: tokens of a block.
        costs: costs of computing.
        cache: its KV cache; workers may share one.
        loads: kept up to date.
        loop: provides the time.
        step_times: step durations of all workers.
        on_prefilled: called with the worker's number and each job whose prompt is computed.
        on_ended: called with the worker's number and each request whose stream ended.
    """

    def __init__(
        self,
        number: int,
        speed: float,
        block_tokens: int,
        costs: CostModel,
        cache: BlockCache,
        loads: Loads,
        loop: EventLoop,
        step_times: StepTimes,
        on_prefilled: Callable[[int, Job], None],
        on_ended: Callable[[int, Request], None],
    ) -> None:
        self.number = number
        self.speed = speed
        self.cache = cache
        self.busy_seconds = 0.0
        """Seconds spent computing prompts so far."""
        self._block_tokens = block_tokens
        self._costs = costs
        self._loads = loads
        self._loop = loop
        self._on_prefilled = on_prefilled
        self._on_ended = on_ended
        self._line = SimulatedWaitingLine()
        self._engine = SimulatedEngine(costs, loop, step_times, self._prefilled, self._ended)

    def work_seconds(self, request: Request, cached_blocks: int) -> float:
        """Return the time to compute a prompt here; at least one token is computed."""
        return self._costs.prefill_seconds(
            self.uncached_tokens(request, cached_blocks), request.prompt_tokens, self.speed
        )

    def uncached_tokens(self, request: Request, cached_blocks: int) -> int:
        """Return how many tokens of a prompt must be computed."""
        return max(1, request.prompt_tokens - cached_blocks * self._block_tokens)

    def submit(self, job: Job) -> None:
        """Add a prompt to the waiting line."""
        loads, number = self._loads, self.number
        loads.queued[number] += job.predicted
        loads.waiting[number] += 1
        self._line.push(job, self._loop.now)
        self._start()

    def decode(self, request: Request, steps: float | None = None) -> None:
        """Start a stream whose KV is at this worker.

        Args:
            request: whose it is.
            steps: after which it ends; None: those of its output.
        """
        self._engine.decode(request, steps)
        self._note()

    def clear(self, cache: BlockCache) -> tuple[list[Job], list[tuple[Request, float]]]:
        """Lose all work and start over with another cache.

        Returns:
            (prompts that were not computed, streams and the steps that each had left).
        """
        self.cache = cache
        job, streams = self._engine.clear()
        jobs = self._line.clear()
        self._loads.queued[self.number] = 0.0
        self._loads.waiting[self.number] = 0
        self._note()
        return ([job] if job is not None else []) + jobs, streams

    def _start(self) -> None:
        if self._engine.prefilling:
            return
        job = self._line.pop(self._loop.now)
        if job is None:
            ready = self._line.next_ready()
            if ready is not None:
                self._loop.at(ready, self._start)
            return
        request = job.request
        job.cached = max(self.cache.prefix(request.chain), job.brought)
        job.work = self.work_seconds(request, job.cached)
        self.busy_seconds += job.work
        queued = self._loads.queued
        queued[self.number] = queued[self.number] - job.predicted if len(self._line) else 0.0
        self._engine.prefill(job, self.uncached_tokens(request, job.cached))
        self._note()

    def _prefilled(self, job: Job) -> None:
        self._loads.waiting[self.number] -= 1
        self._on_prefilled(self.number, job)
        self._start()
        self._note()

    def _ended(self, request: Request) -> None:
        self._note()
        self._on_ended(self.number, request)

    def _note(self) -> None:
        self._loads.busy_until[self.number] = self._engine.busy_until
        self._loads.streams[self.number] = self._engine.streams
