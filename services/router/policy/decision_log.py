"""The latest decisions of a router, to be explained when somebody asks.

What a decision was made on is kept as it is, and nothing is computed before somebody asks: to keep
one takes less than a microsecond.
"""

from collections import deque
from typing import NamedTuple

from baton.errors import BatonError
from services.router.policy.placement_service import PlacementPlan, PlacementRequest

MAX_DECISIONS = 1_000
MAX_CANDIDATES = 100_000
"""Of all decisions: with a thousand workers, those of the last hundred decisions or so."""


class AdmissionTurn(NamedTuple):
    """When a request's turn came, of all that waited for its model."""

    tier: int
    priority_class: int
    tenant_lead: float
    """Tokens by weight that its tenant was given beyond the one that was given least."""
    key: float
    ahead: int
    """Requests that went before it, when it came."""
    waiting: int
    """Requests that waited, when it came."""
    weight: float = 1.0
    """Of its tenant."""


class DecisionRecord(NamedTuple):
    """One decision of a request. Times are of one monotonic clock, in seconds."""

    request_id: str
    request: PlacementRequest
    decided_at: float
    waited: float = 0.0
    """Before that, also at other routers."""
    turn: AdmissionTurn | None = None
    """None: it did not wait."""
    plan: PlacementPlan | None = None
    """None: it was refused."""
    reason: str = ""
    """Why it was placed so."""
    refusal: BatonError | None = None


class DecisionLog:
    """Keeps the latest decisions. One loop owns it.

    Args:
        limit: most decisions that are kept.
        max_candidates: most candidates of all that are kept, so that memory is bounded however many
            workers there are.
    """

    def __init__(self, limit: int = MAX_DECISIONS, max_candidates: int = MAX_CANDIDATES) -> None:
        self._limit = limit
        self._max_candidates = max_candidates
        self._records: deque[DecisionRecord] = deque()
        self._candidates = 0

    def __len__(self) -> int:
        """Return the number of decisions that are kept."""
        return len(self._records)

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision; the oldest ones go for it."""
        records = self._records
        records.append(record)
        if record.plan is not None:
            self._candidates += record.plan.candidates
        while len(records) > self._limit or (
            self._candidates > self._max_candidates and len(records) > 1
        ):
            gone = records.popleft()
            if gone.plan is not None:
                self._candidates -= gone.plan.candidates

    def of(self, request_id: str) -> list[DecisionRecord]:
        """Return the decisions of a request that are kept, the latest first."""
        return [record for record in reversed(self._records) if record.request_id == request_id]
