"""How urgent each batch is that runs, and which will be late: from the database, each second."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from baton.batches.estimates import CompletionEstimates
from baton.batches.forecasts import ForecastStore, RunningBatch
from baton.batches.records import BATCH_ID
from baton.batches.urgency import hold_seconds, is_late, next_step, urgent_lines
from baton.conversations.ids import text_of
from baton.errors import BatonError
from baton.telemetry.logs import get_logger
from services.frontend.metrics import BATCHES_LATE, LATEST_BATCH

_LOOK_SECONDS = 1.0
_PERIOD, _LEAST_SECONDS = 1 / 1000, 0.5
"""A batch is looked at once in this part of its window, and in this time."""

log = get_logger(__name__)


def effective_steps(batches: Sequence[RunningBatch]) -> dict[UUID, int]:
    """Return the step of each batch: its own, or a higher one of the same tenant's after it."""
    highest: dict[str, int] = {}
    found: dict[UUID, int] = {}
    for one in reversed(batches):
        highest[one.tenant] = found[one.id] = max(one.step, highest.get(one.tenant, 0))
    return found


class DeadlineWatch:
    """Decides how urgent batches are. One per frontend that runs lines, on the event loop; `run`
    keeps it up to date.

    Of a batch one frontend decides at a time, and all go by what it stored.

    Args:
        store: of forecasts.
        estimates: when batches end, at the rate of now.
    """

    def __init__(self, store: ForecastStore, estimates: CompletionEstimates) -> None:
        self._store = store
        self._estimates = estimates
        self._running: dict[UUID, RunningBatch] = {}
        self._steps: dict[UUID, int] = {}
        """With that of batches of the same tenant that wait for it."""
        self._seen: dict[UUID, float] = {}
        """Since when each one is known here, by the loop's clock."""

    async def run(self) -> None:
        """Look at the batches that run, until cancelled."""
        while True:
            if self._store.available:
                try:
                    await self.look()
                except BatonError as error:
                    log.warning("batches.forecasts.failed", error=error.message)
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Read what was decided, and decide where that is due.

        Raises:
            BatonError: UNAVAILABLE.
        """
        found = await self._store.running()
        now = asyncio.get_running_loop().time()
        self._seen = {one.id: self._seen.get(one.id, now) for one in found}
        running = [await self._decide(one, now) for one in found]
        self._running = {one.id: one for one in running}
        self._steps = effective_steps(running)
        late = [one.late for one in running if one.late > 0]
        BATCHES_LATE.set(len(late))
        LATEST_BATCH.set(max(late, default=0.0))

    def urgent_lines(self, batch: UUID, running: int) -> int:
        """Return how many of so many running lines of a batch have the class interactive."""
        return urgent_lines(running, self._steps.get(batch, 0))

    def patience(self, batch: UUID) -> float:
        """Return the seconds for which a line runs in its class before it may become urgent."""
        return hold_seconds(self._running[batch].time.window)

    async def _decide(self, one: RunningBatch, now: float) -> RunningBatch:
        period = max(_LEAST_SECONDS, one.time.window * _PERIOD)
        measured = now - self._seen[one.id]
        if one.looked < period or measured < hold_seconds(one.time.window):
            return one  # decided elsewhere, or this frontend knows no rate yet
        needed = self._estimates.seconds_until(one.tenant, one.id, one.lines)
        step, late = next_step(one.step, one.time, needed), is_late(one.step, one.time, needed)
        first = await self._store.tell(one, step, needed, late=late, after=period)
        seconds = needed - one.time.left if late and needed is not None else 0.0
        if first:
            log.warning(
                "batches.batch.late",
                tenant=one.tenant,
                subject=text_of(BATCH_ID, one.id),
                seconds=round(seconds),
                seconds_left=round(one.time.left),
                lines=one.lines,
            )
        return one._replace(step=step, late=seconds)
