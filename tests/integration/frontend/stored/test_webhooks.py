"""openai-python manages webhook endpoints, and reads the events of responses in the background."""

from typing import Any

import openai
import pytest

from tests.integration.frontend.stored.test_background import FEW, LONG, ended
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually
from tests.support.webhooks.receiver import Received, receiving

pytestmark = pytest.mark.xdist_group("openai")

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
RESPONSES = [f"response.{end}" for end in ("completed", "incomplete", "failed", "cancelled")]


async def test_each_end_of_a_response_is_told(frontends: Frontends) -> None:
    here, there = frontends.clients
    async with receiving(lambda _: NO_CONTENT) as receiver:
        made = await here.webhooks.create(
            name="ends", url=receiver.url, event_types=RESPONSES[:1] + RESPONSES[2:]
        )
        whole = await here.responses.create(input="Hello", **(FEW | {"max_output_tokens": 200}))
        cancelled = await there.responses.create(input="Hello", **LONG)
        short = await there.responses.create(input="Hello", **(LONG | {"max_output_tokens": 3}))
        await there.responses.cancel(cancelled.id)
        ends = {one.id: (await ended(here, one.id)).status for one in (whole, short)}
        assert ends[short.id] == "incomplete"
        expected = (
            {(f"response.{ends[whole.id]}", whole.id)} if ends[whole.id] == "completed" else set()
        )
        expected.add(("response.cancelled", cancelled.id))
        await eventually(lambda: len(receiver.requests) >= len(expected))
    told = {_read(one, made.signing_secret) for one in receiver.requests}
    assert told == expected


async def test_endpoints_are_made_listed_changed_tested_and_deleted(frontends: Frontends) -> None:
    here, there = frontends.clients
    types = await here.webhooks.event_types.list()
    assert set(RESPONSES) < set(types.data)
    async with receiving(lambda _: NO_CONTENT) as receiver:
        made = [
            await here.webhooks.create(
                name=f"n{at}", url=receiver.url, event_types=["batch.failed"]
            )
            for at in range(3)
        ]
        listed = [one async for one in there.webhooks.list(limit=2)]
        assert [one.id for one in listed] == [one.id for one in made[::-1]]
        first = made[0]
        assert first.signing_secret.startswith("whsec_")
        found = await there.webhooks.retrieve(first.id)
        shown = first.to_dict()
        shown.pop("signing_secret")
        assert found.to_dict() == shown
        same = await there.webhooks.update(first.id, name="n0")
        assert same.updated_at == found.updated_at
        changed = await there.webhooks.update(first.id, name="new", event_types=types.data)
        assert (changed.name, changed.event_types, changed.url) == ("new", types.data, found.url)
        tested = await there.webhooks.test(first.id, event_type="batch.completed")
        assert (tested.success, tested.status_code) == (True, 204)
        assert _read(receiver.requests[0], first.signing_secret) == (
            "batch.completed",
            "batch_test",
        )
        rotated = await here.webhooks.rotate_secret(
            first.id, keep_old_secret_active_for_24_hours=True
        )
        await here.webhooks.test(first.id, event_type="batch.completed")
        for secret in (first.signing_secret, rotated.signing_secret):
            assert _read(receiver.requests[1], secret)
        await here.webhooks.rotate_secret(first.id)
        await here.webhooks.test(first.id, event_type="batch.completed")
        with pytest.raises(openai.InvalidWebhookSignatureError):
            _read(receiver.requests[2], rotated.signing_secret)
    with pytest.raises(openai.BadRequestError, match="not reached: cannot connect"):
        await here.webhooks.test(first.id, event_type="batch.completed")
    for one in made:
        gone = await here.webhooks.delete(one.id)
        assert (gone.id, gone.deleted) == (one.id, True)
    with pytest.raises(openai.NotFoundError):
        await there.webhooks.retrieve(first.id)
    assert [one async for one in there.webhooks.list()] == []


def _read(received: Received, secret: str) -> tuple[str, str]:
    client = openai.OpenAI(api_key="none", webhook_secret=secret)
    event: Any = client.webhooks.unwrap(received.body, received.headers)
    return event.type, event.data.id
