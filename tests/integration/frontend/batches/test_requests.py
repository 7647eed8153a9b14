"""`/v1/batch`: requests in a body, an estimate, and a callback."""

import json
from typing import Any

import openai
import pytest

from baton.webhooks.events import EVENT_TYPES
from tests.integration.frontend.batches.test_openai_batches import CHAT, ended, lines_of
from tests.support.engine.model import MODEL
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually
from tests.support.webhooks.receiver import receiving

pytestmark = pytest.mark.xdist_group("openai")


def asked(count: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 3}
    return {"requests": [{"body": body}] * count, **more}


async def test_requests_run_and_their_client_is_told(frontends: Frontends) -> None:
    (here, there), client = frontends.http, frontends.clients[0]
    async with receiving() as receiver:
        given = asked(4, callback_url=receiver.url, metadata={"a": "b"}, priority="batch")
        given["requests"][1] = {**given["requests"][1], "custom_id": "mine"}
        response = await here.post("/v1/batch", json=given)
        assert response.status_code == 200, response.text
        made = response.json()
        assert made["batch_id"] == made["id"] and made["endpoint"] == CHAT
        batch = await ended(client, made["batch_id"])
        assert batch.status == "completed" and batch.metadata == {"a": "b"}
        lines = await lines_of(client, batch.output_file_id)
        names = ["request-1", "mine", "request-3", "request-4"]
        assert [line["custom_id"] for line in lines] == names
        assert await eventually(lambda: bool(receiver.requests))
        (told,) = receiver.requests
        event = openai.OpenAI(api_key="none", base_url="http://127.0.0.1:1").webhooks.unwrap(
            told.body, told.headers, secret=made["signing_secret"]
        )
        assert (event.type, event.data.id) == ("batch.completed", batch.id)

        # Lines have ended by now, so that a rate is known.
        async def estimated() -> Any:
            return (await there.post("/v1/batch", json=asked(500))).json()["estimated_completion"]

        assert await eventually(estimated)


async def test_each_end_of_a_batch_is_told(frontends: Frontends) -> None:
    here, client = frontends.http[0], frontends.clients[0]
    types = [kind for kind in EVENT_TYPES if kind.startswith("batch.")]
    async with receiving() as receiver:
        await client.webhooks.create(name="ends", url=receiver.url, event_types=types)
        wrong = asked(2)
        wrong["requests"][1] = {"body": {"model": "none", "messages": []}}
        failed = (await here.post("/v1/batch", json=wrong)).json()["id"]
        done = (await here.post("/v1/batch", json=asked(1))).json()["id"]
        statuses = {one: (await ended(client, one)).status for one in (failed, done)}
        assert statuses == {failed: "failed", done: "completed"}
        assert await eventually(lambda: len(receiver.requests) >= 2)
    bodies = [read_event(one.body) for one in receiver.requests]
    assert sorted(bodies) == sorted([("batch.failed", failed), ("batch.completed", done)])


def read_event(data: bytes) -> tuple[str, str]:
    event = json.loads(data)
    return event["type"], event["data"]["id"]


@pytest.mark.parametrize(
    ("more", "field", "sentence"),
    [
        ({"requests": []}, "requests", "must have 1 to 50000 requests"),
        ({"endpoint": "/v1/embeddings"}, "endpoint", "must be one of"),
        ({"priority": "interactive"}, "priority", "Invalid enum value"),
        ({"completion_window": "1h"}, "completion_window", "must be one of 24h"),
        ({"callback_url": "ftp://example.com"}, "callback_url", "must begin with https://"),
        ({"callback_url": "https://10.0.0.1/"}, "callback_url", "not an address that this cluster"),
        ({"callback_url": "https://u:p@example.com/"}, "callback_url", "must not have a user"),
        ({"callback": "https://example.com"}, "callback", "unknown parameter"),
        ({"requests": [{"model": MODEL}]}, "requests[0].model", "unknown parameter"),
        ({"requests": [{"custom_id": "a"}]}, "requests[0].body", "is required"),
    ],
)
async def test_bad_fields_are_named(
    frontends: Frontends, more: dict[str, Any], field: str, sentence: str
) -> None:
    response = await frontends.http[0].post("/v1/batch", json={**asked(1), **more})
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert sentence in error["message"], error
    assert error["param"] == field, error
