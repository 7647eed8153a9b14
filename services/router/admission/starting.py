"""What the queue is planned with while requests wait for a model's workers to start."""

from collections.abc import Mapping
from typing import NamedTuple

from baton.on_demand.state import ModelTurn
from services.router.admission.waiting import WaitingRequest
from services.router.policy.placement_service import PlacementRequest

_WORKER = "starting"


class StartingPlan(NamedTuple):
    """Where a request would go: to a worker that has yet to start."""

    prefill_seconds: float
    uncached_tokens: int
    ttft_seconds: float
    worker_id: str = _WORKER
    has_room: bool = True


class StartingPlanner:
    """Stands for one worker that has nothing to compute once it serves.

    It predicts and nothing more: no request is placed by it.

    Args:
        turn: when the model's workers are expected to serve.
        token_seconds: of a prompt's token, as one of them last computed it; 0: not known.
    """

    def __init__(self, turn: ModelTurn, token_seconds: float) -> None:
        self._turn = turn
        self._token_seconds = token_seconds

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return the seconds that a prompt takes to compute, with nothing of it cached."""
        return (request.prompt_tokens + request.output_tokens) * self._token_seconds

    def queue_seconds(
        self,
        now: float,
        rank: int = 0,  # noqa: ARG002  # as Planner has it
    ) -> Mapping[str, float]:
        """Return the seconds until the worker serves."""
        return {_WORKER: self._turn.ready_in(now)}

    def next_turn(self, gate: float, now: float, rank: int = 0) -> float:  # noqa: ARG002  # as Planner has it
        """Return infinity: an event says when workers serve."""
        return float("inf")

    def tokens_per_second(self) -> float:
        """Return the worker's rate."""
        return 1 / self._token_seconds if self._token_seconds else 1.0

    def hold_nothing(self) -> None:
        """Release all held space: there is none."""

    def hold(self, plan: StartingPlan) -> None:
        """Hold no space."""

    def any_room(self, rank: int = 0) -> bool:  # noqa: ARG002  # as Planner has it
        """Return whether a request could be placed: none can."""
        return False

    def plan(
        self,
        waiting: WaitingRequest,
        planned: Mapping[str, float],  # noqa: ARG002  # as Planner has it
        now: float,
    ) -> StartingPlan:
        """Return when a request would be computed, if it were the only one."""
        request = waiting.request
        seconds = self.remaining_seconds(request)
        known = request.prompt_tokens + request.output_tokens
        return StartingPlan(seconds, known, self._turn.ready_in(now) + seconds)
