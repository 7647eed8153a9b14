"""A simulated cluster: requests arrive, the router places them, workers run them."""

from collections.abc import Callable, Sequence

from simulator.config import ClusterConfig
from simulator.model.cache import BlockCache
from simulator.model.events import EventLoop
from simulator.model.loads import Loads
from simulator.model.step_times import StepTimes
from simulator.model.waiting_line import Job
from simulator.model.worker import SimulatedWorker
from simulator.request import Request, WorkerChoice
from simulator.router import Router

_IDLE_SECONDS = 60.0
"""A router that holds requests for this long without any event will not place them."""
_TICK_SHARE = 1e-6
"""Tolerance for the next tick, as a share of the interval: multiples of it are not exact."""


class SimulatedCluster:
    """Workers under one router. `loop.run()` runs the submitted requests to their end.

    Args:
        config: the cluster's configuration.
        blocks: distinct blocks of all requests.
        block_tokens: tokens of a block.
        shared_cache: all workers share one unbounded cache; the router learns of it as the first
            worker's.
        loop: simulated time.
    """

    def __init__(
        self,
        config: ClusterConfig,
        blocks: int,
        block_tokens: int,
        *,
        shared_cache: bool,
        loop: EventLoop,
    ) -> None:
        self.loads = Loads(config.all_workers)
        self.step_times = StepTimes()
        self.brought_tokens = 0
        """KV tokens transferred from other workers for prompts."""
        self.found_blocks = 0
        """Leading blocks of prompts that were not computed."""
        self.prompt_blocks = 0
        self._config = config
        self._block_tokens = block_tokens
        self._loop = loop
        self.copies = [0] * blocks
        """Number of caches that hold each block."""
        self._placed = 0
        self._report_planned = False
        self._changed_at = 0.0
        """Time of the last event that could let a router place a held request."""
        self._shared_cache = shared_cache
        self._handoffs_until = [0.0] * config.all_workers
        shared = BlockCache(None) if shared_cache else None
        capacity = max(1, config.cache_tokens // block_tokens)
        self.workers = [
            SimulatedWorker(
                number,
                config.speed(number),
                block_tokens,
                config.costs,
                BlockCache(capacity) if shared is None else shared,
                self.loads,
                loop,
                self.step_times,
                self._prefilled,
                self._ended,
            )
            for number in range(config.all_workers)
        ]

    def serve(
        self,
        router: Router,
        requests: Sequence[Request],
        on_first_token: Callable[[Request], None] | None = None,
    ) -> None:
        """Submit requests at their times, sorted; `loop.run()` then runs them."""
        self._router = router
        self._on_first_token = on_first_token
        interval, delay = self._config.report_interval, self._config.report_delay
        last = 0.0
        self._take_report(self.loads.measure(0.0), 0)
        for request in requests:
            made = request.arrival - delay
            if interval:
                made = made // interval * interval
            # Only a report followed by no other before a placement affects it.
            if made > last or (made >= 0 and not interval):
                last = made
                self._loop.at(made, self._report)
            self._loop.at(request.arrival, self._arrive, request)

    def submit(self, request: Request) -> None:
        """Submit a request now, to the router of `serve`; it may have arrived earlier."""
        self._arrive(request)

    def place(self, request: Request, choice: WorkerChoice) -> None:
        """Send a request that waited in the router to its worker."""
        self._placed += 1
        self._changed_at = self._loop.now
        self._submit(request, choice, self._loop.now)

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call a function of the router at a time."""
        self._loop.at(when, call)

    def _transfer(self, worker: int, blocks: int) -> float:
        """Transfer blocks from other workers, after transfers in progress; return the arrival
        time."""
        tokens = blocks * self._block_tokens
        self.brought_tokens += tokens
        until = self.loads.transfers_until
        arrives = max(float(until[worker]), self._loop.now)
        arrives += self._config.costs.transfer_seconds(tokens)
        until[worker] = arrives
        return arrives

    def _report(self) -> None:
        now, delay = self._loop.now, self._config.report_delay
        if delay:
            self._loop.at(now + delay, self._take_report, self.loads.measure(now), self._placed)
        else:
            self._take_report(self.loads.measure(now), self._placed)

    def _plan_report(self) -> None:
        """Report loads to the router at the next tick while requests wait in it."""
        interval = self._config.report_interval
        if interval and self._router.waiting and not self._report_planned:
            self._report_planned = True
            tick = (self._loop.now // interval + 1) * interval
            if tick - self._loop.now < _TICK_SHARE * interval:
                # Now is a tick that division by the interval rounded down.
                tick += interval
            self._loop.at(tick, self._report_planned_tick)

    def _report_planned_tick(self) -> None:
        self._report_planned = False
        self._report()
        if self._loop.now - self._changed_at < _IDLE_SECONDS:
            self._plan_report()

    def _take_report(self, loads: Loads, placed: int) -> None:
        self._router.report(loads, placed, self._loop.now)

    def _arrive(self, request: Request) -> None:
        now = self._loop.now
        self._changed_at = now
        choice = self._router.place(request, now)
        if choice is not None:
            self.place(request, choice)
        self._plan_report()

    def _submit(self, request: Request, choice: WorkerChoice, now: float) -> None:
        worker = self.workers[choice.worker]
        request.worker = choice.worker
        own = worker.cache.prefix(request.chain)
        brought = self._available(request.chain, choice.brought) if choice.brought > own else 0
        costs, ready = self._config.costs, now
        if brought > own:
            ready = self._transfer(choice.worker, brought - own)
        else:
            brought = 0
        ready = max(ready, now + costs.local_seconds(own * self._block_tokens))
        work = worker.work_seconds(request, max(own, brought))
        decode = choice.decode
        if decode is None:
            decode = self._least_kv() if self._config.pools else choice.worker
        self.loads.blocks[decode] += len(request.chain)
        key = choice.key
        if key is None:
            key = 0.0, self._config.ordering.key(work, request.arrival)
        worker.submit(Job(request, key, ready, work, brought, decode))

    def _available(self, chain: Sequence[int], limit: int) -> int:
        """Return how many of the first `limit` blocks of a chain are in some cache."""
        copies = self.copies
        for length, block in enumerate(chain[:limit]):
            if not copies[block]:
                return length
        return min(limit, len(chain))

    def _least_kv(self) -> int:
        """Return the decode worker with the fewest blocks of running and expected streams."""
        first = self._config.workers
        return first + int(self.loads.blocks[first:].argmin())

    def _prefilled(self, number: int, job: Job) -> None:
        now, request = self._loop.now, job.request
        request.ttft = now - request.arrival
        request.cached_blocks = job.cached
        self.found_blocks += job.cached
        self.prompt_blocks += len(request.chain)
        if self._on_first_token is not None:
            self._on_first_token(request)
        self._keep(number, request.chain)
        if job.decode == number:
            self.workers[number].decode(request)
        else:
            self._hand_over(job, now)
        if not self._config.report_interval and self._router.waiting:
            self._report()
        self._changed_at = now
        self._plan_report()

    def _keep(self, number: int, chain: Sequence[int]) -> None:
        """Make a chain the most recent in a worker's cache, and report the change to the router."""
        added, evicted = self.workers[number].cache.use(chain)
        number = 0 if self._shared_cache else number
        copies = self.copies
        for block in added:
            copies[block] += 1
        for block in evicted:
            copies[block] -= 1
        delay = self._config.event_delay
        if delay:
            self._loop.at(self._loop.now + delay, self._apply_events, number, added, evicted)
        else:
            self._apply_events(number, added, evicted)

    def _apply_events(self, number: int, added: list[int], evicted: list[int]) -> None:
        if added:
            self._router.add_blocks(number, added)
        if evicted:
            self._router.remove_blocks(number, evicted)

    def _hand_over(self, job: Job, now: float) -> None:
        """Transfer a prompt's KV to its decode worker: all but the last chunk arrived during
        computation."""
        costs, tokens = self._config.costs, job.request.prompt_tokens
        last = min(tokens, costs.chunk_tokens or self._block_tokens)
        began = max(self._handoffs_until[job.decode], now - job.work)
        arrived = max(began + costs.transfer_seconds(tokens), now + costs.transfer_seconds(last))
        self._handoffs_until[job.decode] = arrived
        self._loop.at(arrived, self.workers[job.decode].decode, job.request)

    def _ended(self, number: int, request: Request) -> None:
        self.loads.blocks[number] -= len(request.chain)
        self._router.end(request, self._loop.now)
        self._changed_at = self._loop.now
        self._plan_report()
