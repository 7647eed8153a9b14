"""A simulated cluster whose workers that compute prompts come and go."""

from collections.abc import Callable, Sequence

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.cache import BlockCache
from simulator.model.events import EventLoop
from simulator.model.waiting_line import Job
from simulator.request import Request
from simulator.router import ElasticRouter, Router


class ElasticCluster(SimulatedCluster):
    """`config.workers` places for workers, of which some are taken.

    A worker that leaves loses its cache. One that is lost loses its work, too: prompts are placed
    again, and streams continue on another worker where they were. Requests that arrive while there
    is no worker wait for one, as they do at frontends.

    Args:
        config: the cluster's configuration; `started_workers` are there at the beginning.
        blocks: distinct blocks of all requests.
        block_tokens: tokens of a block.
        loop: simulated time.
    """

    def __init__(
        self, config: ClusterConfig, blocks: int, block_tokens: int, *, loop: EventLoop
    ) -> None:
        super().__init__(config, blocks, block_tokens, shared_cache=False, loop=loop)
        started = config.workers if config.started_workers is None else config.started_workers
        self.up = set(range(started))
        """Workers that take requests."""
        self._capacity = max(1, config.cache_tokens // block_tokens)
        self._unserved: list[Request] = []
        """Requests that wait for a worker."""
        self._elastic: ElasticRouter

    def serve(
        self,
        router: Router,
        requests: Sequence[Request],
        on_first_token: Callable[[Request], None] | None = None,
    ) -> None:
        """Submit requests at their times, sorted, to a router whose workers come and go."""
        if not isinstance(router, ElasticRouter):
            raise TypeError(f"the workers of {type(router).__name__} cannot come and go")
        self._elastic = router
        super().serve(router, requests, on_first_token)

    @property
    def unplaced(self) -> int:
        """Number of requests that wait, in the router or for a worker."""
        return len(self._unserved) + self._router.waiting

    @property
    def prompts(self) -> int:
        """Number of prompts at workers that are not computed."""
        return int(self.loads.waiting.sum())

    def is_busy(self, worker: int) -> bool:
        """Return whether a worker has work."""
        return bool(self.loads.waiting[worker] or self.loads.streams[worker])

    def report(self) -> None:
        """Report loads to the router now."""
        self._report()

    def join(self, worker: int) -> None:
        """Add a worker."""
        self.up.add(worker)
        self._elastic.join(worker)
        self._changed_at = self._loop.now
        self._report()
        unserved, self._unserved = self._unserved, []
        for request in unserved:
            self._arrive(request)

    def drain(self, worker: int) -> None:
        """Have a worker take no new requests."""
        self.up.discard(worker)
        self._elastic.drain(worker)
        self._report()

    def leave(self, worker: int) -> None:
        """Remove a worker that has no work."""
        self._remove(worker)

    def fail(self, worker: int) -> None:
        """Lose a worker."""
        self.up.discard(worker)
        jobs, streams = self._remove(worker)
        now, blocks = self._loop.now, self.loads.blocks
        for job in jobs:
            blocks[job.decode] -= len(job.request.chain)
            self._elastic.lost(job.request, now)
            self._arrive(job.request)
        for request, steps in streams:
            blocks[worker] -= len(request.chain)
            heir = min(self.up, key=lambda one: int(self.loads.streams[one]), default=None)
            if heir is None:
                self._elastic.end(request, now)
                continue
            blocks[heir] += len(request.chain)
            self.workers[heir].decode(request, steps)

    def _arrive(self, request: Request) -> None:
        if self.up:
            super()._arrive(request)
            return
        self._unserved.append(request)
        # The router learns that it is wanted, and has no worker for it.
        self._elastic.place(request, self._loop.now)

    def _remove(self, worker: int) -> tuple[list[Job], list[tuple[Request, float]]]:
        gone = self.workers[worker]
        for block in gone.cache:
            self.copies[block] -= 1
        lost = gone.clear(BlockCache(self._capacity))
        self._elastic.leave(worker)
        self._changed_at = self._loop.now
        return lost
