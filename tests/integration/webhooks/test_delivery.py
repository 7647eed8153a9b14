"""Events arrive at their endpoints, at least once, with one id, signed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import openai
import pytest
from standardwebhooks import Webhook

from tests.support.state.databases import Databases
from tests.support.wait import eventually
from tests.support.webhooks.receiver import OK, Received, receiving
from tests.support.webhooks.stage import DAY, OURS, WebhookStage, webhook_stage

FAILED = b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
async def stage(databases: Databases) -> AsyncIterator[WebhookStage]:
    async with webhook_stage(await databases.migrated()) as stage:
        yield stage


def unwrapped(received: Received, secret: str) -> dict[str, object]:
    """Return an event as openai-python reads it."""
    client = openai.OpenAI(api_key="none", webhook_secret=secret)
    event = client.webhooks.unwrap(received.body, received.headers)
    assert type(event).__name__ == "ResponseCompletedWebhookEvent"
    return dict(event.to_dict())


async def test_an_event_arrives_once_signed_at_each_endpoint_of_its_type(
    stage: WebhookStage,
) -> None:
    async with receiving() as first, receiving() as second, receiving() as third:
        _, secret = await stage.endpoint(first.url)
        await stage.endpoint(second.url, ["response.completed"])
        await stage.endpoint(third.url, ["response.failed"])
        async with stage.database.connection() as connection, connection.transaction():
            await stage.outbox.add(connection, OURS, "response.completed", "resp_1")
        await stage.deliver()
        await stage.deliver(DAY)
    (found,) = first.requests
    assert found.body == second.requests[0].body
    assert third.requests == []
    assert unwrapped(found, secret)["data"] == {"id": "resp_1"}
    assert found.headers["webhook-id"] == found.id
    assert {one.outcome for one in await stage.attempts()} == {"delivered"}
    assert await stage.due() == []


async def test_what_is_rolled_back_is_not_told(stage: WebhookStage) -> None:
    async with receiving() as receiver:
        await stage.endpoint(receiver.url)
        with pytest.raises(ZeroDivisionError):
            async with stage.database.connection() as connection, connection.transaction():
                await stage.outbox.add(connection, OURS, "batch.failed", "batch_1")
                raise ZeroDivisionError
        await stage.deliver()
    assert receiver.requests == []


async def test_a_receiver_that_is_away_for_an_hour_gets_each_event_with_its_id(
    stage: WebhookStage,
) -> None:
    away = True
    async with receiving(lambda _: FAILED if away else OK) as receiver:
        await stage.endpoint(receiver.url)
        for number in range(12):
            await stage.add(f"resp_{number}")
            await stage.deliver(300)  # 12 * 5 minutes
        ids = set(receiver.ids)
        assert len(ids) == 12
        away = False
        tried, passed = len(receiver.requests), 0
        while await stage.due():
            await stage.deliver(300)
            passed += 1
            assert passed < 24 * 12
    assert len(receiver.requests) - tried == 12
    assert set(receiver.ids[tried:]) == ids
    outcomes = [one.outcome for one in await stage.attempts()]
    assert (outcomes.count("delivered"), outcomes.count("given_up")) == (12, 0)


async def test_an_event_is_given_up_after_a_day_of_growing_delays(stage: WebhookStage) -> None:
    async with receiving(lambda _: FAILED) as receiver:
        await stage.endpoint(receiver.url)
        await stage.add()
        while due := await stage.due():
            await stage.deliver(max(0.0, due[0].timestamp() - stage.clock() + 0.001))
    attempts = await stage.attempts()
    assert [one.attempt for one in attempts] == list(range(1, len(attempts) + 1))
    assert 9 <= len(attempts) <= 15
    assert [one.outcome for one in attempts] == ["retrying"] * (len(attempts) - 1) + ["given_up"]
    assert DAY * 0.7 < (attempts[-1].began - attempts[0].began).total_seconds() <= DAY
    assert len(set(receiver.ids)) == 1
    assert {one.detail for one in attempts} == {"status 500"}


async def test_two_secrets_sign_while_they_rotate(stage: WebhookStage) -> None:
    async with receiving() as receiver:
        made, old = await stage.endpoint(receiver.url)
        _, new = await stage.endpoints.rotate(OURS, made.text, keep_old=True)
        await stage.add()
        await stage.deliver()
        for secret in (old, new):
            assert unwrapped(receiver.requests[0], secret)
        await stage.deliver(DAY)
        await stage.add()
        await stage.deliver()
    later = receiver.requests[1]
    sent = datetime.fromtimestamp(int(later.headers["webhook-timestamp"]), UTC)
    signature = Webhook(new).sign(later.id, sent, later.body.decode())
    assert later.headers["webhook-signature"] == signature


async def test_what_a_dead_frontend_delivered_is_delivered_again_with_the_same_id(
    databases: Databases,
) -> None:
    url = await databases.migrated()
    async with receiving(lambda _: b"") as silent, webhook_stage(url) as first:
        await first.endpoint(silent.url)
        await first.add()
        task = asyncio.ensure_future(first.delivery.run())
        async with asyncio.timeout(60):
            while not silent.requests:
                await asyncio.sleep(0.01)
        async with webhook_stage(url) as second:
            await second.deliver(60)
            assert len(silent.requests) == 1  # the first one may still deliver it
            task.cancel()
            await asyncio.wait([task])
            silent.answer = lambda _: OK
            await second.deliver(DAY / 24)
            assert silent.ids == [silent.ids[0]] * 2
            assert [one.attempt for one in await second.attempts()] == [2]


async def test_thirty_receivers_that_hang_delay_no_other(stage: WebhookStage) -> None:
    async with receiving(lambda _: b"") as silent, receiving() as good:
        for number in range(30):
            for event in range(8):
                url = f"{silent.url}/{number}"
                subject = f"batch_{event}"
                await stage.outbox.add(stage.database, OURS, "batch.failed", subject, url)
        await stage.delivery.step()
        await eventually(lambda: len(silent.requests) == 30)  # places, one each
        await stage.endpoint(good.url)
        for number in range(20):
            await stage.add(f"resp_{number}")
        while len(set(good.ids)) < 20:
            await stage.delivery.step()
            await asyncio.sleep(0.01)
    assert len(silent.requests) == 30
    assert len(good.requests) == 20
