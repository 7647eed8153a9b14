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
from services.router.state.instances import LOWEST


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
        self._held: dict[tuple[int, str], Held] = {}
        """Space by class and decode worker, held for requests that go first and do not fit yet."""

    def remaining_seconds(self, request: PlacementRequest) -> float:
        """Return the least seconds that the uncached part of a prompt takes to compute.

        Raises:
            BatonError: what `PlacementService.plan` raises.
        """
        return self._placements.remaining_seconds(request)

    def queue_seconds(self, now: float, rank: int = LOWEST) -> Mapping[str, float]:
        """Return the seconds of queued computation of each worker that takes prompts.

        Args:
            now: a monotonic clock, in seconds.
            rank: of a class; work of lower classes is left out.
        """
        queues = self._placements.queue_seconds(self._model, now)
        self._lines.observe(queues)
        return queues if rank == LOWEST else self._placements.queue_seconds(self._model, now, rank)

    def next_turn(self, gate: float, now: float, rank: int = LOWEST) -> float:
        """Return when the next of these workers has at most `gate` seconds left to compute.

        Args:
            gate: in seconds.
            now: a monotonic clock, in seconds.
            rank: as for `queue_seconds`.

        Returns:
            A time of that clock, after now; infinite: not before a worker reports.
        """
        return self._placements.next_turn(self._model, gate, now, rank)

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
        lines, key, rank = self._lines, waiting.key, waiting.rank[1]
        turns = {
            worker_id: lines.turn(worker_id, key, planned.get(worker_id, 0.0), rank)
            for worker_id in (*planned, *lines.workers())
        }
        held = self._held_for(rank)
        return FleetPlan(self._placements.plan(waiting.request, now, turns, held, rank), key)

    def hold(self, plan: FleetPlan) -> None:
        """Hold space for a request that goes first against those planned after it.

        This gives a request of many choices its turn: requests of few choices do not take the space
        that becomes free.
        """
        where = plan.placement.rank, plan.placement.decode_worker_id
        self._held[where] = _sum(plan.placement.room, self._held.get(where))

    def hold_nothing(self) -> None:
        """Release all held space: the first requests are planned again."""
        self._held = {}

    def any_room(self, rank: int = LOWEST) -> bool:
        """Return whether some worker has space for one more sequence besides what is held.

        Args:
            rank: as for `queue_seconds`.
        """
        return self._placements.any_room(self._model, self._held_for(rank), rank)

    def _held_for(self, rank: int) -> dict[str, Held]:
        """Return the space by decode worker that is held against a class."""
        held: dict[str, Held] = {}
        for (of, worker), needed in self._held.items():
            if of <= rank:
                held[worker] = _sum(needed, held.get(worker))
        return held

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
        self._lines.add(plan.worker_id, plan.key, plan.prefill_seconds, plan.placement.rank)
        return placed


def _sum(one: Held, other: Held | None) -> Held:
    return one if other is None else Held(one.choices + other.choices, one.pages + other.pages)
