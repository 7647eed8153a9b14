"""The latest decisions of a router, kept so that operators can have them explained.

The inputs of each decision are kept unchanged, and nothing is computed before an explanation is
requested: keeping one takes less than a microsecond.
"""

from collections import deque
from typing import NamedTuple

from baton.errors import BatonError
from services.router.policy.placement_service import PlacementPlan, PlacementRequest

MAX_DECISIONS = 1_000
MAX_CANDIDATES = 100_000
"""Over all decisions: with a thousand workers, about the last hundred decisions."""


class AdmissionTurn(NamedTuple):
    """When a request's turn came, among all that waited for its model."""

    tier: int
    priority_class: int
    tenant_lead: float
    """Weighted tokens that its tenant received beyond the tenant with the least."""
    key: float
    ahead: int
    """Requests ahead of it on its arrival."""
    waiting: int
    """Waiting requests on its arrival."""
    weight: float = 1.0
    """Weight of its tenant."""


class DecisionRecord(NamedTuple):
    """One decision of a request. All times are of one monotonic clock, in seconds."""

    request_id: str
    request: PlacementRequest
    decided_at: float
    waited: float = 0.0
    """Seconds that it waited before, including at other routers."""
    turn: AdmissionTurn | None = None
    """None: it did not wait."""
    plan: PlacementPlan | None = None
    """None: it was rejected."""
    reason: str = ""
    """Why it was placed there."""
    refusal: BatonError | None = None


class DecisionLog:
    """Keeps the latest decisions. Owned by one event loop.

    Args:
        limit: most decisions kept.
        max_candidates: most candidates kept over all decisions, so that memory is bounded for any
            number of workers.
    """

    def __init__(self, limit: int = MAX_DECISIONS, max_candidates: int = MAX_CANDIDATES) -> None:
        self._limit = limit
        self._max_candidates = max_candidates
        self._records: deque[DecisionRecord] = deque()
        self._candidates = 0

    def __len__(self) -> int:
        """Return the number of decisions kept."""
        return len(self._records)

    def add(self, record: DecisionRecord) -> None:
        """Keep a decision, and drop the oldest ones beyond the limits."""
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
        """Return the kept decisions of a request, the latest first."""
        return [record for record in reversed(self._records) if record.request_id == request_id]
