"""Forecasts in a real Postgres: one frontend decides, and what was said stays."""

import asyncio
import json
from uuid import UUID

from baton.batches.forecasts import ForecastStore, RunningBatch
from baton.batches.urgency import LAST
from baton.postgres.database import Database
from tests.integration.batches.test_line_store import OURS, Runner, database, runners, started
from tests.support.command_line import invoke

__all__ = ["database", "runners"]  # fixtures


async def one(store: ForecastStore) -> RunningBatch:
    (found,) = await store.running()
    return found


async def pass_by(database: Database, seconds: float) -> None:
    """Let the rows be older."""
    await database.execute(
        "update batch_forecasts set since = since - $1 * interval '1 second', "
        "looked_at = looked_at - $1 * interval '1 second'",
        seconds,
    )


async def test_of_those_who_read_the_same_one_decides(
    runners: list[Runner], database: Database
) -> None:
    batch, store = await started(runners[0], 3), ForecastStore(database)
    found = await one(store)
    assert (found.tenant, found.id, found.lines) == (OURS.tenant, batch.id, 3)
    assert (found.step, found.late, found.looked) == (0, 0.0, float("inf"))
    assert found.time.window == 86_400
    assert 0 <= found.time.held < 600 and 0 < found.time.left <= 86_400
    for _ in range(2):
        await store.tell(found, 1, 100.0, late=False, after=10.0)
    found = await one(store)
    assert found.step == 1
    await pass_by(database, 20.0)
    found = await one(store)
    assert 20 <= found.looked < 600 and found.time.held >= 20
    await asyncio.gather(*(store.tell(found, 2, 100.0, late=False, after=10.0) for _ in range(5)))
    await store.tell(found, 0, 100.0, late=False, after=0.0)  # it had read another step
    found = await one(store)
    assert found.step == 2 and found.time.held < 20


async def test_lateness_is_said_once_and_shown(runners: list[Runner], database: Database) -> None:
    await started(runners[0], 3)
    store = ForecastStore(database)
    first = await one(store)
    needed = first.time.left + 500.0
    assert await store.tell(first, LAST, needed, late=True, after=0.0)
    said = []
    for more in (100.0, -100.0, 100.0):
        found = await one(store)
        late = more > 0
        said.append(await store.tell(found, LAST, found.time.left + more, late=late, after=0.0))
        assert abs((await one(store)).late - max(0.0, more)) < 1
    assert said == [False, False, False]
    url = database._settings.url.get_secret_value()
    whose = ("--tenant", OURS.tenant, "--project", OURS.project, "--state-url", url)
    command = ["batches", "show", f"batch_{1:032x}", *whose, "--json"]
    done = await asyncio.to_thread(invoke, command)
    shown = json.loads(done.output)
    assert shown["urgent_share"] == 1.0
    assert abs(shown["predicted_late_seconds"] - 100) < 1 and abs(shown["late_seconds"] - 500) < 1
    assert shown["late_since"] <= shown["predicted_completion"]


async def test_rows_go_with_their_batch(runners: list[Runner], database: Database) -> None:
    await started(runners[0], 1)
    store = ForecastStore(database)
    found = await one(store)
    await store.tell(found, 1, None, late=False, after=0.0)
    await database.execute("delete from batches")
    assert not await store.tell(found, 2, 1.0, late=True, after=0.0)
    assert await store.running() == [] and await store.get(OURS.tenant, UUID(int=1)) is None


async def test_in_the_schema_of_the_release_before_nothing_is_told(
    runners: list[Runner], database: Database
) -> None:
    await started(runners[0], 1)
    await database.execute("drop table batch_forecasts")
    store = ForecastStore(database)
    assert await store.running() == []
    assert await store.get(OURS.tenant, UUID(int=1)) is None
