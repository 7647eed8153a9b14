"""Estimates of when batches complete, from what the database says of them each second."""

import asyncio
import math
import time
from uuid import UUID

from baton.batches.line_rate import BatchWork, LineRate, lines_until
from baton.batches.metrics import UNFINISHED, LineMetrics
from baton.batches.records import IN_PROGRESS, StoredBatch
from baton.batches.store import BatchStore
from baton.errors import BatonError
from baton.telemetry.logs import get_logger

_LOOK_SECONDS = 1.0
_NEW = UUID(int=0)

log = get_logger(__name__)


class CompletionEstimates:
    """Estimates of one frontend, on the event loop; `run` keeps them up to date.

    Every frontend measures the lines of all, so that any of them may be asked.

    Args:
        store: of batches.
        memory: of the rate, in seconds.
        top: tenants with metrics of their own.
    """

    def __init__(self, store: BatchStore, memory: float, top: int = 0) -> None:
        self._store = store
        self._metrics = LineMetrics(top)
        self._rate = LineRate(memory)
        self._work: list[BatchWork] = []

    async def run(self) -> None:
        """Look at the batches that run, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if self._store.available:
                try:
                    self._work = await self._store.work()
                    UNFINISHED.set(sum(batch.left for batch in self._work))
                    self._rate.observe(loop.time(), self._work)
                    self._metrics.update(self._work)
                except BatonError as error:
                    log.warning("batches.estimates.failed", error=error.message)
            await asyncio.sleep(_LOOK_SECONDS)

    def completion_of(self, batch: StoredBatch) -> int | None:
        """Return when a batch completes, in seconds since the Unix epoch; None: it does not run, or
        no rate is known."""
        left = batch.total - batch.completed - batch.failed
        if batch.status != IN_PROGRESS or not left:
            return None
        return self._at(BatchWork(batch.tenant, batch.id, left, 0))

    def completion_of_new(self, tenant: str, lines: int) -> int | None:
        """Return when a batch of so many lines would complete; None: no rate is known."""
        return self._at(BatchWork(tenant, _NEW, lines, 0))

    def seconds_until(self, tenant: str, batch: UUID, left: int) -> float | None:
        """Return the seconds until the last lines of a batch that runs have ended; None: no rate is
        known."""
        return self._seconds(BatchWork(tenant, batch, left, 0))

    def _at(self, own: BatchWork) -> int | None:
        seconds = self._seconds(own)
        return None if seconds is None else math.ceil(time.time() + seconds)

    def _seconds(self, own: BatchWork) -> float | None:
        rate = self._rate.per_second
        return None if rate is None else lines_until(self._work, own) / rate
