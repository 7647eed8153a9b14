"""Baton's router with its queue, which also decides which request goes next."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from baton.errors import BatonError
from services.router.admission.lateness import Lateness
from services.router.admission.planner import FleetPlanner
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.classes import DEFAULT_ADMISSION, AdmissionPolicy
from services.router.admission.shares.fairness import FairShares
from services.router.admission.waiting import (
    DEFAULT_SETTINGS,
    QueuedWork,
    QueueSettings,
    TicketCharge,
    WaitingRequest,
)
from simulator.config import ClusterConfig
from simulator.model.loads import Loads
from simulator.policies.baton import MODEL, SESSION, BatonRouter
from simulator.request import Request, WorkerChoice
from simulator.router import Actions

PAUSE_SECONDS = 1e-3
"""Delay before the queue is planned again, as in production."""


class TenantAdmission(NamedTuple):
    """How a tenant's requests are admitted."""

    weight: float = 1.0
    priority_class: int = 0
    """The lowest goes first."""


DEFAULT_TENANT = TenantAdmission()


class BatonQueueRouter(BatonRouter):
    """Holds requests in production's queue, and places them when the queue releases them.

    It checks the queue when a request arrives, when loads are reported, and when a worker is
    expected to become idle.

    Args:
        config: of the cluster.
        keys: of all blocks.
        block_tokens: tokens of a block.
        seed: chooses among equally good placements.
        actions: of the cluster.
        settings: of the queue.
        tie_seconds: of a worker's computing, by which tenants may differ and be equal.
        admission: policies of classes.
        tenants: by name; those that are not named have the first class and a weight of 1.
    """

    def __init__(
        self,
        config: ClusterConfig,
        keys: Sequence[bytes],
        block_tokens: int,
        seed: int,
        actions: Actions,
        settings: QueueSettings = DEFAULT_SETTINGS,
        tie_seconds: float = 2.0,
        admission: AdmissionPolicy = DEFAULT_ADMISSION,
        tenants: Mapping[str, TenantAdmission] = MappingProxyType({}),
    ) -> None:
        super().__init__(config, keys, block_tokens, seed, actions)
        self._planner = FleetPlanner(self._placements, MODEL)
        self._shares = FairShares(tie_seconds)
        self._lateness = Lateness()
        self._classes = admission
        classes = ClassShares(admission)
        self._queue = AdmissionQueue(self._shares, settings, classes, self._lateness)
        self._gate = settings.gate
        self._tenants = tenants
        self._held: dict[int, Request] = {}
        self._charges: dict[int, tuple[TicketCharge, float, float]] = {}
        """By request number: the charge, when it was placed, and the predicted time from then to
        its first token, in seconds."""
        self._turn = math.inf
        """When it checks next, if there is no event before."""

    @property
    def waiting(self) -> int:
        """Number of held requests."""
        return len(self._queue)

    def place(self, request: Request, now: float) -> WorkerChoice | None:
        """Return where a request goes if it is placed immediately; None if it waits or is
        rejected."""
        tenant = self._tenants.get(request.tenant, DEFAULT_TENANT)
        waiting = WaitingRequest(
            request.number,
            self._asked(request),
            SESSION,
            now,
            (0, tenant.priority_class),
            tenant.priority_class,
            tenant.weight,
        )
        try:
            gave_way = self._queue.add(waiting, self._planner, now)
        except BatonError:
            self.demand.refused(MODEL, request.prompt_tokens, now)
            return None
        tokens = self._placements.uncached_tokens(MODEL, waiting.work, request.prompt_tokens)
        self.demand.arrived(MODEL, tokens, request.arrival, now)
        if gave_way is not None:
            del self._held[gave_way.number]
        self._held[request.number] = request
        return self._admit(now, request.number)

    def report(self, loads: Loads, placed: int, now: float) -> None:
        """Handle a report of each worker, and place requests that may go now."""
        super().report(loads, placed, now)
        if self._held:
            self._admit(now)

    def end(self, request: Request, now: float) -> None:
        """Return the request's ticket, and settle its tenant's charge."""
        super().end(request, now)
        cached = min(request.cached_blocks * self._block_tokens, request.prompt_tokens - 1)
        charge, placed_at, predicted = self._charges.pop(request.number)
        self._lateness.observe(predicted, request.arrival + request.ttft - placed_at)
        self._queue.charges.settle(charge, request.prompt_tokens - cached, request.output_tokens)

    def lost(self, request: Request, now: float) -> None:
        """Return the request's ticket, and settle its tenant's charge for nothing."""
        super().lost(request, now)
        charge, _, _ = self._charges.pop(request.number)
        self._queue.charges.settle(charge, 0, 0)

    def _queued_work(self) -> QueuedWork:
        return self._queue.queued_work

    def _admit(self, now: float, asked: int | None = None) -> WorkerChoice | None:
        """Place requests that may go now; return the placement of `asked`, if it is among them."""
        for expired in self._queue.expire(now):
            del self._held[expired.number]
        answer = None
        if self._up <= self._draining:
            return None  # production's frontends ask again when a worker appears
        for waiting, plan, charge, lead, _ in self._queue.due(self._planner, now):
            request = self._held.pop(waiting.number)
            if isinstance(plan, BatonError) or charge is None:
                continue
            try:
                target = self._classes.itl_target(waiting.priority_class)
                placed = self._planner.place(plan, SESSION, now, target)
            except BatonError:
                self._queue.charges.settle(charge, 0, 0)
                continue
            self._charges[request.number] = charge, now, placed.plan.ttft_seconds
            self._count_wait(request, placed, now)
            choice = self._choice(request, placed, (lead, waiting.key))
            if request.number == asked:
                answer = choice
            else:
                self._actions.place(request, choice)
        if self._held:
            self._look_again(now)
        return answer

    def _look_again(self, now: float) -> None:
        """Check the queue when the next worker is expected to become idle."""
        turn = max(self._planner.next_turn(self._gate, now), now + PAUSE_SECONDS)
        if turn < self._turn:
            self._turn = turn
            self._actions.call_at(turn, partial(self._look, turn))

    def _look(self, turn: float) -> None:
        if turn == self._turn:
            self._turn = math.inf
            if self._held:
                self._admit(turn)
