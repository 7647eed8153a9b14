"""The queue's planner, on the fleet that placements are made on."""

from collections.abc import Mapping
from typing import NamedTuple

from services.router.admission.waiting import WaitingRequest
from services.router.admission.worker_lines import WorkerLines
from services.router.policy.costs import Held
from services.router.policy.placement_service import (
    PlacedRequest,
    PlacementPlan,
    PlacementRequest,
    PlacementService,
)


class FleetPlan(NamedTuple):
    """Where a request would go now. Valid until the fleet changes."""

    placement: PlacementPlan
    key: float

    @property
    def worker_id(self) -> str:
        """The worker that would prefill."""
        return self.placement.worker_id

    @property
    def prefill_seconds(self) -> float:
        """Seconds that it would compute."""
        return self.placement.prefill_seconds

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that it would compute."""
        return self.placement.uncached_tokens

    @property
    def ttft_seconds(self) -> float:
        """Predicted seconds to the first token."""
        return self.placement.ttft_seconds

    @property
    def has_room(self) -> bool:
        """Whether its workers have space for all of its choices."""
        return self.placement.has_room


class FleetPlanner:
    """Plans requests for one model. Owned by one event loop.

    Args:
        placements: places them.
        model: the model.
    """

    def __init__(self, placements: PlacementService, model: str) -> None:
        self._placements = placements
        self._model = model
        self._lines = WorkerLines()
        self._held: dict[str, Held] = {}
        """Space by decode worker, held for requests that go first and do not fit yet."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return the least seconds that the uncached part of a prompt takes to compute.

        Raises:
            BatonError: what `PlacementService.plan` raises.
        """
        return self._placements.remaining_seconds(request)

    def queue_seconds(self, now: float) -> Mapping[str, float]:
        """Return the seconds of queued computation of each worker that takes prompts.

        Args:
            now: a monotonic clock, in seconds.
        """
        queues = self._placements.queue_seconds(self._model, now)
        self._lines.observe(queues)
        return queues

    def next_turn(self, gate: float, now: float) -> float:
        """Return when the next of these workers has at most `gate` seconds left to compute.

        Args:
            gate: in seconds.
            now: a monotonic clock, in seconds.

        Returns:
            A time of that clock, after now; infinite: not before a worker reports.
        """
        return self._placements.next_turn(self._model, gate, now)

    def tokens_per_second(self) -> float:
        """Return the prompt tokens per second of all workers that take prompts."""
        return self._placements.tokens_per_second(self._model)

    def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> FleetPlan:
        """Return where a request would go.

        Args:
            waiting: the request.
            planned: by worker, seconds of prompts ahead of it that are not placed yet.
            now: a monotonic clock, in seconds.

        Raises:
            BatonError: what `PlacementService.plan` raises.
        """
        lines, key = self._lines, waiting.key
        turns = {
            worker_id: lines.turn(worker_id, key, planned.get(worker_id, 0.0))
            for worker_id in (*planned, *lines.workers())
        }
        return FleetPlan(self._placements.plan(waiting.request, now, turns, self._held), key)

    def hold(self, plan: FleetPlan) -> None:
        """Hold space for a request that goes first against those planned after it.

        This gives a request of many choices its turn: requests of few choices do not take the space
        that becomes free.
        """
        worker, needed = plan.placement.decode_worker_id, plan.placement.room
        known = self._held.get(worker)
        if known is not None:
            needed = Held(known.choices + needed.choices, known.pages + needed.pages)
        self._held[worker] = needed

    def hold_nothing(self) -> None:
        """Release all held space: the first requests are planned again."""
        self._held = {}

    def any_room(self) -> bool:
        """Return whether some worker has space for one more sequence besides what is held."""
        return self._placements.any_room(self._model, self._held)

    def place(
        self, plan: FleetPlan, session: int, now: float, itl_target: float | None = None
    ) -> PlacedRequest:
        """Open the ticket of a plan, which must still be valid.

        Args:
            plan: the latest one.
            session: the session that the ticket ends with.
            now: a monotonic clock, in seconds.
            itl_target: as for `PlacementService.commit`.

        Raises:
            BatonError: what `PlacementService.commit` raises.
        """
        placed = self._placements.commit(plan.placement, session, now, itl_target)
        self._lines.add(plan.worker_id, plan.key, plan.prefill_seconds)
        return placed
