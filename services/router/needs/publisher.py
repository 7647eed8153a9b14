"""Publishes what each pool needs, every second."""

import asyncio
import time
from collections.abc import Callable
from typing import NoReturn

from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.api.dispatcher import QueryDispatcher
from services.router.needs.shared import SharedDemand
from services.router.sizing.decision import SizingDecision
from services.router.sizing.demand import NO_DEMAND
from services.router.sizing.observe import pools
from services.router.sizing.settings import SizingSettings
from services.router.sizing.sizer import ModelObservation, Sizer
from services.router.state.instances import Role

REFRESH_SECONDS = 1.0

log = get_logger(__name__)


class NeedPublisher:
    """Sets the gauges of needed replicas. Lives on the event loop.

    Args:
        dispatcher: of this router: what arrives and waits here, and the fleet.
        shared: what arrives and waits at other routers.
        settings: constants of sizing.
        itl_target: seconds between tokens of streams whose class sets no target.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        dispatcher: QueryDispatcher,
        shared: SharedDemand,
        settings: SizingSettings,
        itl_target: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dispatcher = dispatcher
        self._fleet = dispatcher.placements.fleet
        self._shared = shared
        self._settings = settings
        self._itl_target = itl_target
        self._clock = clock
        self._sizer = Sizer(settings)
        self._opened_at = clock()
        self._published: dict[tuple[Role, str], SizingDecision] = {}

    async def run(self) -> NoReturn:
        """Refresh the gauges every second until cancelled."""
        while True:
            self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    def refresh(self) -> None:
        """Decide anew, set the gauges, and share this router's demand."""
        now, dispatcher, shared = self._clock(), self._dispatcher, self._shared
        covered = now - self._opened_at >= self._settings.arrival_seconds
        known, models = shared.known, list(self._fleet.models)
        ttft_target = min(self._settings.ttft_target, dispatcher.ttft_target)
        own, others = {}, shared.others()
        decisions: dict[tuple[Role, str], SizingDecision] = {}
        self._sizer.retain(models)
        for model in models:
            demand = dispatcher.demand(model)
            if demand.any:
                own[model] = demand
            seen = ModelObservation(
                demand.joined(others.get(model, NO_DEMAND)),
                pools(self._fleet, model),
                routers_known=known,
                covered=covered,
                itl_target=self._itl_target,
                ttft_target=ttft_target,
            )
            for role, decision in self._sizer.decide(model, seen, now).items():
                decisions[role, model] = decision
        shared.set(own, covered=covered)
        self._publish(decisions)

    def _publish(self, decisions: dict[tuple[Role, str], SizingDecision]) -> None:
        before, self._published = self._published, decisions
        for (role, model), decision in decisions.items():
            known = before.pop((role, model), None)
            if known == decision:
                continue
            metrics.NEEDED_REPLICAS.labels(role, model).set(decision.replicas)
            if known is None or known.reason is not decision.reason:
                metrics.NEEDED_REPLICAS_REASON.labels(role, model, decision.reason).set(1)
                if known is not None:
                    metrics.NEEDED_REPLICAS_REASON.remove(role, model, known.reason)
            if known is None or known.replicas != decision.replicas:
                log.info(
                    "router.needed_replicas.changed",
                    role=role,
                    model=model,
                    replicas=decision.replicas,
                    before=known.replicas if known is not None else None,
                    reason=decision.reason,
                )
        for (role, model), decision in before.items():
            metrics.NEEDED_REPLICAS.remove(role, model)
            metrics.NEEDED_REPLICAS_REASON.remove(role, model, decision.reason)
