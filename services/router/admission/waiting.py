"""A request that waits in the router, and what decides how long."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from baton.errors import BatonError
from services.router.admission.shares.tiers import DEFAULT_TIERS, TierPolicy
from services.router.policy.placement_service import PlacementRequest


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Constants of a queue. Times are in seconds."""

    gate: float = 0.1
    """A worker with no more than this to compute takes one more prompt; 0: one that is idle."""
    age: float = 0.005
    """Seconds of computing that a second of waiting makes up for."""
    window: int = 64
    """Requests, the first ones, that each change plans."""
    refresh: float = 0.5
    """How old an estimate of what is cached of a waiting prompt may be."""
    max_wait: float = 600.0
    """A request that has waited for so long is given up."""
    max_tenant: int = 2_000
    """Requests of one tenant that may wait."""
    max_total: int = 10_000
    """Requests that may wait."""
    tiers: TierPolicy = DEFAULT_TIERS
    """How tiers share what workers compute."""


DEFAULT_SETTINGS = QueueSettings()


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request that waits. Times are of one monotonic clock, in seconds."""

    number: int
    """Tells it from all others that wait."""
    request: PlacementRequest
    session: int
    """What it leaves the queue with."""
    arrival: float
    """Now, less what it has waited at another router."""
    rank: tuple[int, int] = (0, 0)
    """Of its tier and its priority class; 0 is the highest."""
    priority_class: int = 0
    """What its class's policy is found by."""
    weight: float = 1.0
    """Of its tenant, above 0."""
    deadline: float = math.inf
    """A first token after this time is worth nothing; infinite: as its class has it."""
    ttft_target: float = math.inf
    """Time to first token that is to be kept; infinite: as its class has it."""
    output_tokens: int = 0
    """That are expected."""
    due: float = math.inf
    """The queue's: when its first token is to be there; infinite: whenever it comes."""
    work: float = 0.0
    """The queue's: seconds left to compute, as last estimated."""
    choices_seconds: float = 0.0
    """Of a worker's time that its choices beyond the first take."""
    key: float = 0.0
    """The queue's: among equals the lowest goes first. It travels to the worker, whose waiting
    line has the same order."""
    bound: float = 0.0
    """The queue's: when it is given up."""

    @property
    def tenant(self) -> str:
        return self.request.tenant


class AdmissionPlan(Protocol):
    """Where a request would go now."""

    @property
    def worker_id(self) -> str:
        """The worker that would compute the prompt."""

    @property
    def prefill_seconds(self) -> float:
        """It would compute for so long."""

    @property
    def uncached_tokens(self) -> int:
        """It would compute so many tokens."""

    @property
    def ttft_seconds(self) -> float:
        """Its first token would be there in so long."""

    @property
    def has_room(self) -> bool:
        """Whether its workers have room for all of its choices."""


P = TypeVar("P", bound=AdmissionPlan)


class Planner(Protocol[P]):
    """Knows workers and what each request would cost there."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return how long the uncached part of a prompt takes to compute, at the least.

        Raises:
            BatonError: it can go nowhere, and waiting will not help.
        """

    def queue_seconds(self, now: float) -> Mapping[str, float]:
        """Return how long each worker that takes prompts computes what was placed there.

        Args:
            now: a monotonic clock, in seconds.
        """

    def next_turn(self, gate: float, now: float) -> float:
        """Return when the next of these workers has no more than `gate` seconds left to compute.

        Args:
            gate: in seconds.
            now: a monotonic clock, in seconds.

        Returns:
            A time of that clock, after now; infinite: not before something is heard of a worker.
        """

    def hold_nothing(self) -> None:
        """Plan the first requests anew: no room is kept for any."""

    def hold(self, plan: P) -> None:
        """Keep room for a request that goes first and has none, from those planned after it."""

    def any_room(self) -> bool:
        """Return whether some worker has room for one more sequence, beyond what is kept."""

    def tokens_per_second(self) -> float:
        """Return how many prompt tokens the workers that take prompts compute, together."""

    def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> P:
        """Return where a request would go.

        Args:
            waiting: the request.
            planned: by worker, seconds of prompts that go before it and were not placed yet.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: it can go nowhere, and waiting will not help.
        """


class TicketCharge(NamedTuple):
    """What a request was charged when it went, to be settled when its ticket is back."""

    tenant: str
    tier: int
    priority_class: int
    weight: float
    """Of its class."""
    tokens: int
    """That its tenant was charged."""
    uncached_tokens: int
    """Of its prompt, predicted."""
    output_tokens: int
    """Predicted."""
    owed: bool
    """Whether it went because of its class's floor."""


class Due(NamedTuple, Generic[P]):
    """A request whose turn has come; it does not wait any more."""

    waiting: WaitingRequest
    plan: P | BatonError
    """Where it goes, or why it can go nowhere."""
    charge: TicketCharge | None
    """What `ShareCharges.settle` is given when its ticket is back; None with an error."""
    tenant_lead: float = 0.0
    """Tokens by weight that its tenant was given beyond the least of its tier."""
    rank: tuple[int, int] = (0, 0)
    """Of its tier and class in the lines of workers, which knows whose turn it was here: the lowest
    goes first."""
