"""Responses go on in the background, and clients follow them at any frontend."""

import asyncio
from typing import Any

import httpx
import pytest

from baton.postgres.connecting import connected
from tests.support.engine.model import MODEL
from tests.support.engine.pace import paced
from tests.support.state.databases import state_settings
from tests.support.state.frontends import Frontends

pytestmark = pytest.mark.xdist_group("openai")

FEW: Any = {"model": MODEL, "max_output_tokens": 12, "temperature": 0, "background": True}
LONG: Any = FEW | {"max_output_tokens": 2000, "extra_body": {"ignore_eos": True}}


async def ended(client: Any, ident: str) -> Any:
    """Poll as OpenAI's documentation does."""
    while True:
        response = await client.responses.retrieve(ident)
        if response.status not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.05)


async def streamed(stream: Any) -> list[Any]:
    return [event.to_dict() async for event in stream]


async def test_a_response_is_polled_at_another_frontend(frontends: Frontends) -> None:
    here, there = frontends.clients
    begun = await here.responses.create(input="Hello", **FEW)
    assert (begun.background, begun.status, begun.output) == (True, "in_progress", [])
    found = await ended(there, begun.id)
    whole = await here.responses.create(input="Hello", **(FEW | {"background": False}))
    assert found.output_text == whole.output_text
    assert found.usage == whole.usage
    onward = await there.responses.create(input="So?", previous_response_id=found.id, **FEW)
    assert (await ended(here, onward.id)).usage.input_tokens > found.usage.input_tokens
    async with connected(state_settings(frontends.url)) as connection:
        assert await connection.fetchval("select count(*) from background_responses") == 0


async def test_one_that_has_hours_runs_as_batches_do(frontends: Frontends) -> None:
    here, there = frontends.clients
    begun = await here.responses.create(
        input="Hello", background_options={"completion_window": "8h"}, **FEW
    )
    assert begun.service_tier == "flex"
    found = await ended(there, begun.id)
    assert (found.status, found.service_tier) == ("completed", "flex")
    soon = await here.responses.create(
        input="Hello", background_options={"completion_window": "soonest"}, **FEW
    )
    assert soon.service_tier is None
    assert (await ended(there, soon.id)).output_text == found.output_text


async def test_its_events_come_again_from_any_of_them_at_any_frontend(
    frontends: Frontends,
) -> None:
    here, there = frontends.clients
    live = await streamed(await here.responses.create(input="Hello", stream=True, **FEW))
    assert [event["sequence_number"] for event in live] == list(range(len(live)))
    ident = live[0]["response"]["id"]
    for client in (here, there):
        for after in range(len(live) - 1):
            rest = await client.responses.retrieve(ident, stream=True, starting_after=after)
            assert await streamed(rest) == live[after + 1 :]
    assert await streamed(await there.responses.retrieve(ident, stream=True)) == live
    assert (await there.responses.retrieve(ident)).to_dict() == live[-1]["response"]


async def test_a_client_that_left_goes_on_at_another_frontend(frontends: Frontends) -> None:
    here, there = frontends.clients
    few = LONG | {"max_output_tokens": 300}
    stream = await here.responses.create(input="Hello", stream=True, **few)
    seen: list[Any] = []
    async for event in stream:
        seen.append(event.to_dict())
        if len(seen) == 20:
            break
    await stream.close()
    ident = seen[0]["response"]["id"]
    async with there.responses.stream(response_id=ident, starting_after=19) as rest:
        tail = [event async for event in rest]
    assert tail[0].sequence_number == 20
    numbers = [event.sequence_number for event in tail]
    assert sorted(set(numbers)) == list(range(20, numbers[-1] + 1))
    assert tail[-1].response.status == "incomplete"
    assert (await ended(here, ident)).output_text == tail[-1].response.output_text


async def test_the_blocking_client_does_the_same(frontends: Frontends) -> None:
    import openai

    base = str(frontends.clients[1].base_url)

    def run() -> None:
        with openai.OpenAI(base_url=base, api_key="none") as client:
            begun = client.responses.create(input="Hello", **FEW)
            with client.responses.stream(response_id=begun.id, starting_after=0) as stream:
                events = list(stream)
            assert events[0].sequence_number == 1
            found = client.responses.retrieve(begun.id)
            assert events[-1].response.output_text == found.output_text  # type: ignore[union-attr]
            assert client.responses.cancel(begun.id) == found
            client.responses.delete(begun.id)

    await asyncio.to_thread(run)


@pytest.mark.parametrize("other", [0, 1])
async def test_a_response_is_cancelled_at_any_frontend(frontends: Frontends, other: int) -> None:
    with paced():
        begun = await frontends.clients[0].responses.create(input="Hello", **LONG)
        cancelled = await frontends.clients[other].responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    again = await frontends.clients[0].responses.cancel(begun.id)
    assert again == cancelled
    events = await frontends.clients[1].responses.retrieve(begun.id, stream=True)
    assert (await streamed(events))[-1]["response"]["status"] == "cancelled"


async def test_a_response_that_runs_is_deleted(frontends: Frontends) -> None:
    with paced():
        begun = await frontends.clients[0].responses.create(input="Hello", **LONG)
        await frontends.clients[1].responses.delete(begun.id)
    answer = await frontends.http[0].get(f"/v1/responses/{begun.id}")
    assert answer.status_code == 404
    async with connected(state_settings(frontends.url)) as connection:
        for table in ("background_responses", "response_events", "responses", "items"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"store": False}, 400, "background"),
        ({"model": "none"}, 404, "model"),
        ({"max_output_tokens": 10**6}, 400, "max_output_tokens"),
    ],
)
async def test_what_cannot_run_is_refused_at_once(
    frontends: Frontends, fields: dict[str, Any], status: int, param: str | None
) -> None:
    body = {"input": "hi", **FEW, **fields}
    answer = await frontends.http[0].post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


async def test_bad_input_of_streams(frontends: Frontends) -> None:
    (client, _), (http, _) = frontends.clients, frontends.http
    begun = await client.responses.create(input="Hello", **FEW)
    await ended(client, begun.id)
    await refused(http, f"{begun.id}?stream=true&starting_after=100000", 400, "starting_after")
    await refused(http, f"{begun.id}?stream=true&starting_after=x", 400, "starting_after")
    whole = await client.responses.create(input="Hello", **(FEW | {"background": False}))
    await refused(http, f"{whole.id}?stream=true", 400, "stream")
    answer = await http.post(f"/v1/responses/{whole.id}/cancel")
    assert answer.status_code == 400
    unknown = "resp_" + "0" * 32
    assert (await http.post(f"/v1/responses/{unknown}/cancel")).status_code == 404
    await refused(http, f"{unknown}?stream=true", 404, None)


async def refused(http: httpx.AsyncClient, path: str, status: int, param: str | None) -> None:
    answer = await http.get(f"/v1/responses/{path}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
