"""A request that waits in the router, and the settings that bound its wait."""

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
    """A worker with at most this much left to compute takes one more prompt; 0: only when idle."""
    age: float = 0.005
    """Seconds of computing that one second of waiting offsets."""
    window: int = 64
    """Number of requests at the head of the queue that each change plans."""
    refresh: float = 0.5
    """Most seconds that an estimate of a waiting prompt's cached part is used for."""
    max_wait: float = 600.0
    """Seconds after which a waiting request expires."""
    max_tenant: int = 2_000
    """Most waiting requests of one tenant."""
    max_total: int = 10_000
    """Most waiting requests in total."""
    tiers: TierPolicy = DEFAULT_TIERS
    """How tiers share the workers' computing."""


DEFAULT_SETTINGS = QueueSettings()


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A waiting request. All times are of one monotonic clock, in seconds."""

    number: int
    """Unique among waiting requests."""
    request: PlacementRequest
    session: int
    """The session whose end removes it from the queue."""
    arrival: float
    """Time of arrival, less what it waited at another router."""
    rank: tuple[int, int] = (0, 0)
    """Ranks of its tier and its priority class; 0 is the highest."""
    priority_class: int = 0
    """The key of its class's policy."""
    weight: float = 1.0
    """Weight of its tenant, above 0."""
    deadline: float = math.inf
    """A first token after this time is useless; infinite: the class's deadline applies."""
    ttft_target: float = math.inf
    """Time to first token to meet; infinite: the class's target applies."""
    output_tokens: int = 0
    """Expected output tokens."""
    place_by: float = math.inf
    """When it is to be placed; one that would be placed later is rejected on arrival."""
    due: float = math.inf
    """Set by the queue: when its first token is due; infinite: at any time."""
    work: float = 0.0
    """Set by the queue: seconds left to compute, as last estimated."""
    choices_seconds: float = 0.0
    """Seconds of a worker's time that its choices beyond the first take."""
    key: float = 0.0
    """Set by the queue: among equals the lowest goes first. It is sent to the worker, whose waiting
    line has the same order."""
    bound: float = 0.0
    """Set by the queue: when it expires."""

    @property
    def tenant(self) -> str:
        return self.request.tenant


class QueuedWork(NamedTuple):
    """Sums over the waiting requests for one model."""

    requests: int = 0
    sequences: int = 0
    """Choices that will decode."""
    prefill_seconds: float = 0.0
    """Seconds to compute their prompts on the fastest worker, as last estimated."""
    prompt_tokens: int = 0
    """With those that are cached."""
    kv_tokens: int = 0
    """Tokens that their choices need KV pages for when they begin."""


NOTHING_QUEUED = QueuedWork()


class QueueOutlook(NamedTuple):
    """What a new request would meet, whatever its prompt."""

    waits: bool = False
    """It would wait, in this queue."""
    full: bool = False
    """It would be rejected, because of the number that wait."""
    wait_seconds: float = 0.0
    """Predicted seconds until a worker has computed all that waits now."""


class AdmissionPlan(Protocol):
    """Where a request would go now."""

    @property
    def worker_id(self) -> str:
        """The worker that would prefill."""

    @property
    def prefill_seconds(self) -> float:
        """Seconds that it would compute."""

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that it would compute."""

    @property
    def ttft_seconds(self) -> float:
        """Predicted seconds to the first token."""

    @property
    def has_room(self) -> bool:
        """Whether its workers have space for all of its choices."""


P = TypeVar("P", bound=AdmissionPlan)


class Planner(Protocol[P]):
    """Knows the workers and what each request would cost on them."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return the least seconds that the uncached part of a prompt takes to compute.

        Raises:
            BatonError: no worker can run it, and waiting will not help.
        """

    def queue_seconds(self, now: float, rank: int) -> Mapping[str, float]:
        """Return the seconds of queued computation of each worker that takes prompts.

        Args:
            now: a monotonic clock, in seconds.
            rank: of a class; work of lower classes gives way to it, and is left out.
        """

    def next_turn(self, gate: float, now: float, rank: int) -> float:
        """Return when the next of these workers has at most `gate` seconds left to compute.

        Args:
            gate: in seconds.
            now: a monotonic clock, in seconds.
            rank: as for `queue_seconds`.

        Returns:
            A time of that clock, after now; infinite: not before a worker reports.
        """

    def hold_nothing(self) -> None:
        """Release all held space: the first requests are planned again."""

    def hold(self, plan: P) -> None:
        """Hold space for a request that goes first and does not fit yet, against later ones."""

    def any_room(self, rank: int) -> bool:
        """Return whether some worker has space for one more sequence besides what is held.

        Args:
            rank: as for `queue_seconds`.
        """

    def tokens_per_second(self) -> float:
        """Return the prompt tokens per second of all workers that take prompts."""

    def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> P:
        """Return where a request would go.

        Args:
            waiting: the request.
            planned: by worker, seconds of prompts ahead of it that are not placed yet.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: no worker can run it, and waiting will not help.
        """


class TicketCharge(NamedTuple):
    """What a request was charged when it was placed, settled when its ticket is returned."""

    tenant: str
    tier: int
    priority_class: int
    weight: float
    """Weight of its class."""
    tokens: int
    """Tokens charged to its tenant."""
    uncached_tokens: int
    """Predicted uncached tokens of its prompt."""
    output_tokens: int
    """Predicted output tokens."""
    owed: bool
    """Whether it was placed because of its class's floor."""


class Due(NamedTuple, Generic[P]):
    """A request whose turn has come; it no longer waits."""

    waiting: WaitingRequest
    plan: P | BatonError
    """Where it goes, or why no worker can run it."""
    charge: TicketCharge | None
    """The argument of `ShareCharges.settle` when its ticket is returned; None with an error."""
    tenant_lead: float = 0.0
    """Weighted tokens that its tenant received beyond the least of its tier."""
    rank: tuple[int, int] = (0, 0)
    """Ranks of its tier and class in the workers' lines, by whose turn it was here: the lowest goes
    first."""
