"""Estimates of when batches complete, from what the database says of them each second."""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
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
        weight_of: returns the weight of the tenant of a key.
        top: tenants with metrics of their own.
    """

    def __init__(
        self,
        store: BatchStore,
        memory: float,
        weight_of: Callable[[str], int] = lambda _: 1,
        top: int = 0,
    ) -> None:
        self._store = store
        self._weight_of = weight_of
        self._weights: dict[str, int] = {}
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
                    self._weights = {one.tenant: self._weight_of(one.key) for one in self._work}
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
        return self._at(BatchWork(batch.tenant, batch.id, left, 0), self._weights)

    def completion_of_new(self, tenant: str, weight: int, lines: int) -> int | None:
        """Return when a batch of so many lines would complete; None: no rate is known.

        Args:
            tenant: whose batch it is.
            weight: of the tenant.
            lines: of the batch.
        """
        own = BatchWork(tenant, _NEW, lines, 0)
        return self._at(own, self._weights | {tenant: weight})

    def seconds_until(self, tenant: str, batch: UUID, left: int) -> float | None:
        """Return the seconds until the last lines of a batch that runs have ended; None: no rate is
        known."""
        return self._seconds(BatchWork(tenant, batch, left, 0), self._weights)

    def _at(self, own: BatchWork, weights: Mapping[str, int]) -> int | None:
        seconds = self._seconds(own, weights)
        return None if seconds is None else math.ceil(time.time() + seconds)

    def _seconds(self, own: BatchWork, weights: Mapping[str, int]) -> float | None:
        rate = self._rate.per_second
        return None if rate is None else lines_until(self._work, own, weights) / rate
