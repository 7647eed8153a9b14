"""A queue of requests in front of workers that are a dict of seconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from baton.errors import BatonError, Reason
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tiers import DEFAULT_TIERS, TierPolicy
from services.router.admission.waiting import Due, QueueSettings, WaitingRequest
from services.router.policy.placement_service import PlacementRequest


class Plan(NamedTuple):
    worker_id: str
    prefill_seconds: float
    uncached_tokens: int
    ttft_seconds: float = 0.0
    has_room: bool = True
    choices: int = 1


@dataclass
class Workers:
    """Uses the shortest queue, at 100 tokens a second; `held` tokens of each prompt are cached."""

    queues: dict[str, float]
    held: dict[int, int] = field(default_factory=dict)
    """Cached tokens, by the seed of the request."""
    refuse: set[int] = field(default_factory=set)
    """Seeds of requests to reject."""
    planned: int = 0
    places: float = math.inf
    """Number of choices for which all workers together have space."""
    kept: int = 0
    """Of these, reserved for the request that is next."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        return max(1, request.prompt_tokens - self.held.get(request.seed, 0)) / 100

    def queue_seconds(self, now: float, rank: int) -> Mapping[str, float]:
        return self.queues

    def next_turn(self, gate: float, now: float, rank: int) -> float:
        """As for workers that compute while time passes, which the workers of this test do not."""
        return min(
            (now + one - gate for one in self.queues.values() if one > gate), default=math.inf
        )

    def hold_nothing(self) -> None:
        self.kept = 0

    def hold(self, plan: Plan) -> None:
        self.kept += plan.choices

    def any_room(self, rank: int) -> bool:
        return self.places - self.kept >= 1

    def tokens_per_second(self) -> float:
        return 100.0 * len(self.queues)

    def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> Plan:
        self.planned += 1
        if waiting.request.seed in self.refuse:
            raise BatonError(Reason.NO_WORKER, "no decode worker is available")
        worker = min(self.queues, key=lambda one: (self.queues[one] + planned.get(one, 0), one))
        work = self.remaining_seconds(waiting.request)
        n = waiting.request.n
        fits = self.places - self.kept >= n
        return Plan(worker, work, round(100 * work), self.queues[worker] + work, fits, n)

    def place(self, due: Due[Plan]) -> None:
        assert not isinstance(due.plan, BatonError)
        self.queues[due.plan.worker_id] += due.plan.prefill_seconds
        self.places -= due.plan.choices


def waiting(
    number: int,
    tokens: int = 100,
    at: float = 0.0,
    *,
    tenant: str = "",
    rank: int = 0,
    tier: int = 0,
    session: int = 1,
    deadline: float = float("inf"),
    target: float = float("inf"),
    place_by: float = float("inf"),
    n: int = 1,
) -> WaitingRequest:
    request = PlacementRequest("m", tokens, 10, n=n, tenant=tenant, seed=number)
    return WaitingRequest(
        number,
        request,
        session,
        at,
        (tier, rank),
        rank,
        deadline=deadline,
        ttft_target=target,
        place_by=place_by,
    )


def place_due(queue: AdmissionQueue, workers: Workers, now: float = 0.0) -> list[int]:
    placed = []
    for due in queue.due(workers, now):
        workers.place(due)
        placed.append(due.waiting.number)
    return placed


def made(
    *requests: WaitingRequest,
    workers: Workers,
    waits: bool = False,
    tiers: TierPolicy = DEFAULT_TIERS,
    **constants: float,
) -> AdmissionQueue:
    policy = AdmissionPolicy({0: ClassAdmission(waits=waits)})
    settings = QueueSettings(tiers=tiers, **constants)  # type: ignore[arg-type]
    queue = AdmissionQueue(FairShares(0.0), settings, ClassShares(policy))
    for one in requests:
        queue.add(one, workers, one.arrival)
    return queue
