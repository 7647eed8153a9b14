"""The store of forecasts: how urgent batches are, and when they will end, for all frontends."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from baton.batches.store import BATCHES
from baton.batches.urgency import BatchTime
from baton.conversations.failures import failures
from baton.postgres.database import Database

_EXISTS = "select to_regclass('batch_forecasts') is not null"
_RUNNING = """
select one.tenant, one.id, one.total - one.completed - one.failed,
    extract(epoch from one.expires_at - one.created_at)::float8,
    extract(epoch from one.expires_at - now())::float8,
    extract(epoch from now() - coalesce(told.since, one.in_progress_at))::float8,
    coalesce(told.step, 0)::integer,
    coalesce(extract(epoch from now() - told.looked_at), 'infinity')::float8,
    case when told.late then extract(epoch from told.completes_at - one.expires_at) else 0
        end::float8
from batches one
left join batch_forecasts told on told.tenant = one.tenant and told.batch = one.id
where one.ended_at is null and one.status = 'in_progress' order by one.expires_at limit 1000
"""
_TELL = """
insert into batch_forecasts as told
select tenant, id, $3, now(), now(), now() + $4::float8 * interval '1 second', $5,
    case when $5 then now() end,
    case when $5 then extract(epoch from now() - expires_at) + $4 end
from batches where tenant = $1 and id = $2 for key share
on conflict (tenant, batch) do update set
    since = case when told.step = excluded.step then told.since else excluded.since end,
    step = excluded.step, looked_at = now(), completes_at = excluded.completes_at,
    late = excluded.late,
    late_since = coalesce(told.late_since, excluded.late_since),
    late_seconds = coalesce(told.late_seconds, excluded.late_seconds)
where told.step = $6 and told.looked_at <= now() - $7::float8 * interval '1 second'
returning late_since = now()
"""
"""Whoever looks first decides: another one finds that it was looked at, or another step."""
_GET = """
select step, since, completes_at, late, late_since, late_seconds from batch_forecasts
where tenant = $1 and batch = $2
"""


class RunningBatch(NamedTuple):
    """A batch that runs, and what was last told of it."""

    tenant: str
    id: UUID
    lines: int
    """Without a result."""
    time: BatchTime
    step: int
    looked: float
    """Seconds since that; infinite: nothing was told."""
    late: float
    """Seconds by which it was predicted to be late; 0: it was not."""


class BatchForecast(NamedTuple):
    """What is told of a batch."""

    step: int
    since: datetime
    completes_at: datetime | None
    """None: no rate was known."""
    late: bool
    late_since: datetime | None
    """When it was first predicted to be late; None: never."""
    late_seconds: float | None
    """Predicted then."""


class ForecastStore:
    """Forecasts of batches. On the event loop.

    Errors: BatonError UNAVAILABLE, if the database is away or slow. In the schema of an earlier
    release there are none.

    Args:
        database: with the rows.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._exists = False

    @property
    def available(self) -> bool:
        """Whether the database's last response was successful."""
        return self._database.available

    async def running(self) -> list[RunningBatch]:
        """Return the batches that run, those first that expire first."""
        with failures(BATCHES):
            if not await self._found():
                return []
            rows = await self._database.fetch(_RUNNING)
        return [
            RunningBatch(tenant, ident, lines, BatchTime(window, left, held), *told)
            for tenant, ident, lines, window, left, held, *told in rows
        ]

    async def tell(
        self, batch: RunningBatch, step: int, needed: float | None, *, late: bool, after: float
    ) -> bool:
        """Store a forecast, unless another frontend did meanwhile.

        Args:
            batch: as it was read.
            step: from now on.
            needed: seconds until its last line ends; None: no rate is known.
            late: whether it will be late.
            after: seconds that the last forecast is old at least.

        Returns:
            Whether this is the first one that says that it will be late.
        """
        values = batch.tenant, batch.id, step, needed, late, batch.step, after
        with failures(BATCHES):
            rows = await self._database.fetch(_TELL, *values)
        return bool(rows and rows[0][0])

    async def get(self, tenant: str, batch: UUID) -> BatchForecast | None:
        """Return what was last told of a batch; None: nothing was."""
        with failures(BATCHES):
            if not await self._found():
                return None
            rows = await self._database.fetch(_GET, tenant, batch)
        return BatchForecast(*rows[0]) if rows else None

    async def _found(self) -> bool:
        if not self._exists:
            self._exists = (await self._database.fetch(_EXISTS))[0][0]
        return self._exists
