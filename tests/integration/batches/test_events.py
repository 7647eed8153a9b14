"""Each end of a batch is told to webhook endpoints, with the end itself."""

import json
from collections.abc import AsyncIterator

import pytest

from baton.postgres.database import Database
from tests.integration.batches.test_line_store import Runner, create, lapse, runners, started
from tests.support.state.databases import Databases
from tests.support.webhooks.stage import OURS, WebhookStage, webhook_stage

__all__ = ["runners"]  # a fixture


@pytest.fixture
async def stage(databases: Databases) -> AsyncIterator[WebhookStage]:
    async with webhook_stage(await databases.migrated()) as stage:
        await stage.endpoint("https://example.com/")
        yield stage


@pytest.fixture
def database(stage: WebhookStage) -> Database:
    return stage.database


async def told(database: Database) -> list[tuple[str, str]]:
    rows = await database.fetch("select body from webhook_deliveries order by event")
    events = [json.loads(row["body"]) for row in rows]
    return [(event["type"], event["data"]["id"]) for event in events]


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "expired"])
async def test_an_end_is_told_once(runners: list[Runner], database: Database, outcome: str) -> None:
    first, second, _ = runners
    batch = await started(first, 1)
    name = f"batch_{batch.id.hex}"
    await database.execute("update batches set lease_until = now() - interval '1 second'")
    if outcome == "completed":
        await first.write(await first.lines.claim(batch, 1))
    elif outcome == "cancelled":
        await first.batches.cancel(OURS, name)
    else:
        await database.execute("update batches set expires_at = now() - interval '1 second'")
        await first.batches.expire()
    lost = await first.batches.claim()
    assert lost is not None
    await lapse(database, "batches")
    lease = await second.batches.claim()
    assert lease is not None
    assert not await first.batches.end(lost, None, None)
    assert await told(database) == []
    assert await second.batches.end(lease, None, None)
    assert not await second.batches.end(lease, None, None)
    assert await told(database) == [(f"batch.{outcome}", name)]


async def test_a_batch_with_errors_is_told(runners: list[Runner], database: Database) -> None:
    first = runners[0]
    made = await create(first)
    lease = await first.batches.claim()
    assert lease is not None
    await first.batches.fail(lease, 1, "[]")
    await first.batches.fail(lease, 1, "[]")
    assert await told(database) == [("batch.failed", made.text)]
