"""A request that waits in the router, and what decides how long."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from baton.errors import BatonError
from services.router.placement.service import PlacementRequest


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Constants of a queue. Times are in seconds."""

    gate: float = 0.1
    """A worker with no more than this to compute takes one more prompt; 0: one that is idle."""
    age: float = 0.05
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


DEFAULT_SETTINGS = QueueSettings()


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that waits. Times are of one monotonic clock, in seconds."""

    number: int
    """Tells it from all others that wait."""
    request: PlacementRequest
    session: int
    """What it leaves the queue with."""
    arrival: float
    """Now, less what it has waited at another router."""
    rank: tuple[int, int] = (0, 0)
    """Tier and priority class; the lowest goes first."""
    weight: float = 1.0
    """Of its tenant, above 0."""
    deadline: float = float("inf")
    """When it is given up."""
    output_tokens: int = 0
    """That are expected."""
    key: float = 0.0
    """The queue's: among equals the lowest goes first. It travels to the worker, whose waiting
    line has the same order."""
    bound: float = 0.0
    """The queue's: when it is given up."""

    @property
    def tenant(self) -> str:
        return self.request.tenant


class Plan(Protocol):
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


P = TypeVar("P", bound=Plan)
P_co = TypeVar("P_co", bound=Plan, covariant=True)


class Planner(Protocol[P_co]):
    """Knows workers and what each request would cost there."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return how long the uncached part of a prompt takes to compute."""

    def queue_seconds(self) -> Mapping[str, float]:
        """Return how long each worker that takes prompts computes what was placed there."""

    def plan(self, waiting: Waiting, planned: Mapping[str, float]) -> P_co:
        """Return where a request would go.

        Args:
            waiting: the request.
            planned: by worker, seconds of prompts that go before it and were not placed yet.

        Raises:
            BatonError: it can go nowhere, and waiting will not help.
        """


class Due(NamedTuple, Generic[P]):
    """A request whose turn has come; it does not wait any more."""

    waiting: Waiting
    plan: P | BatonError
    """Where it goes, or why it can go nowhere."""
    charged: int
    """Tokens that its tenant was charged, to be settled when its ticket is back; 0 with an error,
    of which nothing is to be settled."""
