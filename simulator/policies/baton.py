"""Baton: the router's production code, fed with the simulated cluster."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from baton.errors import BatonError
from services.router.admission.waiting import NOTHING_QUEUED, QueuedWork
from services.router.policy.costs import Policy
from services.router.policy.placement_service import (
    Chain,
    PlacedRequest,
    PlacementRequest,
    PlacementService,
)
from services.router.prefix_index.index import PrefixIndex
from services.router.sizing.demand import DemandLog
from services.router.sizing.observe import pools, with_queue
from services.router.sizing.sizer import ModelObservation
from services.router.state.fleet import Fleet
from services.router.state.instances import InstanceState, LoadReport, ModelLayout, Role
from services.router.state.rates import Bandwidths
from services.router.state.tickets import TicketTable
from simulator.config import ClusterConfig
from simulator.model.loads import Loads
from simulator.policies.holdings import Holdings, store_id, worker_id
from simulator.request import Request, WorkerChoice
from simulator.router import Actions

MODEL, LAYOUT = "model", b"layout of blocks"
TOKEN_BYTES = 65_536
"""KV bytes of a token: arbitrary, because it cancels out with the bandwidths below."""
NO_LIMIT = 1e18
MAX_TOKENS = 1024
"""Output limit of clients, which traces do not contain."""
TEND_SECONDS = 0.5
SESSION = 1


class _Issued(NamedTuple):
    """A ticket not yet included in a report."""

    number: int
    """Number of the placement."""
    ticket: str
    workers: tuple[int, ...]


class BatonRouter:
    """Drives production's fleet and placement; makes no decisions itself.

    Args:
        config: of the cluster.
        keys: of all blocks.
        block_tokens: tokens of a block.
        seed: chooses among equally good placements.
        actions: of the cluster.
    """

    def __init__(
        self,
        config: ClusterConfig,
        keys: Sequence[bytes],
        block_tokens: int,
        seed: int,
        actions: Actions,
    ) -> None:
        self._config = config
        self._block_tokens = block_tokens
        self._seed = seed
        self._actions = actions
        self._capacity = max(1, config.cache_tokens // block_tokens)
        costs = config.costs
        self._fleet = Fleet(
            PrefixIndex(),
            TicketTable("simulated"),
            Bandwidths(
                costs.transfer_rate * TOKEN_BYTES if costs.transfer_rate else NO_LIMIT,
                costs.local_rate * TOKEN_BYTES if costs.local_rate else NO_LIMIT,
            ),
        )
        self._holdings = Holdings(self._fleet.index, keys, stores=True)
        self._placements = PlacementService(
            self._fleet, Policy(disaggregation=config.disaggregation)
        )
        self._placed = 0
        self._issued: deque[_Issued] = deque()
        self._tickets: dict[int, str] = {}
        """Tickets by request number."""
        self._tended_at = 0.0
        self.demand = DemandLog()
        """Counts what arrives."""
        self._up: set[int] = set()
        self._draining: set[int] = set()
        layout = ModelLayout(MODEL, LAYOUT, block_tokens, block_tokens * TOKEN_BYTES)
        self._fleet.set_layouts([layout])
        started = config.workers if config.started_workers is None else config.started_workers
        for worker in (*range(started), *range(config.workers, config.all_workers)):
            self.join(worker)

    @property
    def open_tickets(self) -> int:
        """Number of unreturned tickets."""
        return len(self._fleet.tickets)

    @property
    def waiting(self) -> int:
        """Number of held requests: always 0, because each is placed immediately."""
        return 0

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        """Return production's placement; None if it rejects the request."""
        try:
            placed = self._placements.place(self._asked(request), SESSION, now)
        except BatonError:
            self.demand.refused(MODEL, request.prompt_tokens, now)
            return None
        self.demand.arrived(MODEL, placed.plan.uncached_tokens, request.arrival, now)
        self._count_wait(request, placed, now)
        return self._choice(request, placed)

    def observation(
        self, now: float, itl_target: float, ttft_target: float, *, covered: bool
    ) -> ModelObservation:
        """Return what a router would know of the model, for sizing.

        Args:
            now: simulated seconds.
            itl_target: seconds between tokens.
            ttft_target: in seconds.
            covered: whether arrivals of a whole window were seen.
        """
        return ModelObservation(
            with_queue(
                self.demand.demand(MODEL, now), self._queued_work(), self._placements, MODEL
            ),
            pools(self._fleet, MODEL),
            covered=covered,
            itl_target=itl_target,
            ttft_target=ttft_target,
        )

    def _queued_work(self) -> QueuedWork:
        return NOTHING_QUEUED

    def _count_wait(self, request: Request, placed: PlacedRequest, now: float) -> None:
        plan = placed.plan
        waits = now - request.arrival + plan.ttft_seconds - plan.prefill_seconds
        self.demand.waited(MODEL, waits, now)

    def _asked(self, request: Request) -> PlacementRequest:
        """Return the query that a frontend would send."""
        keys = b"".join(self._holdings.keys(request.chain))
        return PlacementRequest(
            MODEL,
            request.prompt_tokens,
            MAX_TOKENS,
            [Chain(LAYOUT, keys)],
            tenant=request.tenant,
            seed=(request.number * 0x9E3779B1 ^ self._seed) & 0xFFFFFFFF,
        )

    def _choice(
        self, request: Request, placed: PlacedRequest, key: tuple[float, float] | None = None
    ) -> WorkerChoice:
        """Return a placement in the cluster's form, and remember its ticket."""
        ticket, decision, _ = placed
        decode = self._number(decision.decode_worker.id)
        prefill = decision.prefill_worker
        worker = decode if prefill is None else self._number(prefill.id)
        self._tickets[request.number] = ticket
        self._issued.append(_Issued(self._placed, ticket, tuple({worker, decode})))
        self._placed += 1
        coverage = decision.prefill.coverage
        return WorkerChoice(worker, coverage.blocks if coverage.remote else 0, decode, key)

    def add_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks added to a worker's cache."""
        self._holdings.add(worker, blocks)

    def remove_blocks(self, worker: int, blocks: Sequence[int]) -> None:
        """Record blocks evicted from a worker's cache."""
        self._holdings.remove(worker, blocks)

    def report(self, loads: Loads, placed: int, now: float) -> None:
        """Pass a report of each worker to the fleet, with the tickets that it includes."""
        tickets: dict[int, list[str]] = {}
        while self._issued and self._issued[0].number < placed:
            issued = self._issued.popleft()
            for worker in issued.workers:
                tickets.setdefault(worker, []).append(issued.ticket)
        costs, waits = self._config.costs, loads.wait(loads.measured_at).tolist()
        streams, blocks = loads.streams.tolist(), loads.blocks.tolist()
        for worker, wait in enumerate(waits):
            if worker not in self._up:
                continue
            rate = costs.prefill_rate * self._config.speed(worker)
            self._fleet.apply_report(
                LoadReport(
                    worker_id(worker),
                    running=streams[worker],
                    pending_prompt_tokens=round(wait * rate),
                    free_pages=self._capacity - blocks[worker],
                    total_pages=self._capacity,
                    prefill_tokens_per_second=costs.learned_rate(
                        streams[worker], self._config.speed(worker)
                    ),
                    decode_step_seconds=costs.batch_step_seconds(max(1, streams[worker])),
                    tickets=tickets.get(worker, ()),
                    draining=worker in self._draining,
                    chunk_tokens=costs.chunk_tokens,
                ),
                now,
            )
        if now >= self._tended_at + TEND_SECONDS:
            self._tended_at = now
            self._fleet.tend(now)

    def end(self, request: Request, now: float) -> None:  # noqa: ARG002  # as Router has it
        """Return the request's ticket."""
        self._placements.return_tickets(SESSION, [self._tickets.pop(request.number)])

    def lost(self, request: Request, now: float) -> None:  # noqa: ARG002  # as ElasticRouter has it
        """Return the ticket of a request whose prompt was not computed."""
        self._placements.return_tickets(SESSION, [self._tickets.pop(request.number)])

    def join(self, worker: int) -> None:
        """Add a worker and its store, as discovery would."""
        config, store = self._config, store_id(worker)
        role = Role.COMBINED
        if config.pools:
            role = Role.PREFILL if worker < config.workers else Role.DECODE
        self._up.add(worker)
        self._fleet.put(InstanceState(store, Role.KVSTORE))
        self._fleet.put(
            InstanceState(worker_id(worker), role, model=MODEL, layout_id=LAYOUT, store_id=store)
        )

    def drain(self, worker: int) -> None:
        """Have a worker report that it drains."""
        self._draining.add(worker)

    def leave(self, worker: int) -> None:
        """Remove a worker and its store, as discovery would."""
        self._up.discard(worker)
        self._draining.discard(worker)
        self._fleet.remove(worker_id(worker))
        self._fleet.remove(store_id(worker))

    @staticmethod
    def _number(instance_id: str) -> int:
        return int(instance_id.rpartition("-")[2])
