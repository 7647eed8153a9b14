"""Endpoints in a real Postgres: for their project only, with secrets that it cannot read."""

from collections.abc import AsyncIterator

import pytest

from baton.conversations.forgetting import forget_tenant
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.webhooks.endpoints import MAX_ENDPOINTS
from baton.webhooks.outbox import EventOutbox
from tests.support.state.databases import Databases, state_settings
from tests.support.webhooks.stage import COMPLETED, OURS, WebhookStage, webhook_stage

URL = "https://example.com/hook"
OTHERS = StateScope("acme", "proj_2"), StateScope("other", "proj_1")


@pytest.fixture
async def stage(databases: Databases) -> AsyncIterator[WebhookStage]:
    async with webhook_stage(await databases.migrated()) as stage:
        yield stage


async def test_other_projects_have_no_part_in_them(stage: WebhookStage) -> None:
    made, _ = await stage.endpoint(URL)
    for other in OTHERS:
        assert await stage.endpoints.recent(other, 10) == []
        for refused in (
            stage.endpoints.get(other, made.text),
            stage.endpoints.update(other, made.text, "theirs", None, None),
            stage.endpoints.rotate(other, made.text, keep_old=True),
            stage.endpoints.delete(other, made.text),
        ):
            with pytest.raises(BatonError) as caught:
                await refused
            assert caught.value.reason is Reason.NOT_FOUND
        await stage.outbox.add(stage.database, other, COMPLETED, "resp_1")
    assert await stage.due() == []
    assert await stage.endpoints.get(OURS, made.text) == made


async def test_secrets_are_sealed(stage: WebhookStage) -> None:
    _, secret = await stage.endpoint(URL)
    (row,) = await stage.database.fetch("select * from webhook_endpoints")
    stored = repr(tuple(row))
    assert secret.removeprefix("whsec_")[:8] not in stored
    assert row["hint"] == f"whsec_...{secret.rstrip('=')[-4:]}"


async def test_a_project_has_a_limited_number(stage: WebhookStage) -> None:
    for _ in range(MAX_ENDPOINTS):
        await stage.endpoint(URL)
    with pytest.raises(BatonError, match="20 webhook endpoints already"):
        await stage.endpoint(URL)
    assert len(await stage.endpoints.recent(OURS, 100)) == MAX_ENDPOINTS


async def test_nothing_waits_for_an_endpoint_that_is_deleted(stage: WebhookStage) -> None:
    made, _ = await stage.endpoint(URL)
    await stage.add()
    assert len(await stage.due()) == 1
    await stage.endpoints.delete(OURS, made.text)
    assert await stage.due() == []


async def test_nothing_is_left_of_a_tenant(stage: WebhookStage) -> None:
    await stage.endpoint("http://127.0.0.1:1/")
    await stage.add()
    await stage.deliver()
    settings = state_settings(stage.database._settings.url.get_secret_value())
    deleted = await forget_tenant(settings, OURS.tenant)
    assert {name: count for name, count in deleted.items() if count} == {
        "webhook_attempts": 1,
        "webhook_deliveries": 1,
        "webhook_endpoints": 1,
    }


async def test_an_older_schema_has_no_events(databases: Databases) -> None:
    async with webhook_stage(await databases.migrated()) as stage:
        await stage.endpoint(URL)
        await stage.database.execute("alter table webhook_deliveries rename to later")
        outbox = EventOutbox()
        await outbox.add(stage.database, OURS, COMPLETED, "resp_1")
        await stage.database.execute("alter table later rename to webhook_deliveries")
        await outbox.add(stage.database, OURS, COMPLETED, "resp_1")
        assert len(await stage.due()) == 1


async def test_the_log_forgets_after_its_retention(stage: WebhookStage) -> None:
    await stage.endpoint("http://127.0.0.1:1/")
    await stage.add()
    await stage.deliver()
    assert len(await stage.attempts()) == 1
    assert await stage.store.forget(stage.clock() - 60) == 0
    assert await stage.store.forget(stage.clock() + 60) == 1
    assert await stage.attempts() == []
