"""A frontend dies or stops in the middle of a response: another one continues with its tokens."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from baton.postgres.connecting import connected
from tests.support.engine.model import MODEL, TRAINED
from tests.support.engine.pace import paced
from tests.support.processes.process import ServiceProcess
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

SAMPLED: Any = {
    "model": MODEL,
    "input": "Hello",
    "max_output_tokens": 400,
    "temperature": 1,
    "extra_body": {"seed": 7, "ignore_eos": True},
}
STREAM: Any = SAMPLED | {"background": True, "stream": True}
ENGINES: Any = {
    "torch": {"engine": "torch", "model": TRAINED, "prefill": 0, "decode": 0, "combined": 1},
    "sim": {"engine": "sim", "prefill": 0, "decode": 0, "combined": 1},
}


class Pair:
    """A frontend that stays, and another one, which is a process that ends."""

    def __init__(self, url: str, ends: ServiceProcess, clients: list[Any]) -> None:
        self.url, self.ends = url, ends
        self.stays_client, self.ends_client = clients

    async def fetch(self, query: str) -> list[Any]:
        async with connected(state_settings(self.url)) as connection:
            return list(await connection.fetch(query))


@pytest.fixture(params=sorted(ENGINES))
async def pair(
    request: pytest.FixtureRequest,
    local_cluster: Callable[..., Awaitable[LocalCluster]],
    databases: Databases,
    tmp_path: Path,
) -> AsyncIterator[Pair]:
    import openai  # takes a second

    url = await databases.migrated()
    cluster = await local_cluster(
        own=True,
        processes=("frontend-1",),
        settings={
            "engine.model_name": MODEL,
            "engine.threads": 1,
            "state.url": SecretStr(url),
            "conversations.enabled": True,
            "conversations.statement_seconds": 20.0,
            "conversations.lease_seconds": 2.0,
            "limits.drain_notice_seconds": 0,
            "usage.spool_path": tmp_path,
        },
        **ENGINES[request.param],
    )
    ends = await cluster.start("frontend-1", {"state.url": url, "drain_seconds": 600})
    assert isinstance(ends, ServiceProcess)
    async with AsyncExitStack() as stack:
        clients: list[Any] = []
        for http in (cluster.http, f"http://{ends.instance.http_address}"):
            client = openai.AsyncOpenAI(base_url=f"{http}/v1", api_key="none")
            clients.append(await stack.enter_async_context(client))
            await eventually(partial(_ready, client))
        yield Pair(url, ends, clients)


async def _ready(client: Any) -> bool:
    import openai

    try:
        await client.responses.retrieve(f"resp_{0:032x}")
    except openai.NotFoundError:
        return True
    except openai.APIError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_another_frontend_goes_on_with_the_same_tokens(
    pair: Pair, number: signal.Signals
) -> None:
    import openai

    whole = await pair.stays_client.responses.create(**SAMPLED)
    seen: list[Any] = []

    async def see() -> None:
        async for event in await pair.ends_client.responses.create(**STREAM):
            seen.append(event.to_dict())

    with paced():  # it is stored each second, and has not ended after the first one
        seeing = asyncio.create_task(see())
        await eventually(partial(_stored, pair))
        pair.ends.signal(number)
    if number == signal.SIGTERM:  # it follows the other one to the end, and then leaves
        await seeing
    else:
        with pytest.raises(openai.APIConnectionError):
            await seeing
    await pair.ends.wait(60)
    kept = seen[: len(seen) // 2]
    ident = kept[0]["response"]["id"]
    rest = await pair.stays_client.responses.retrieve(
        ident, stream=True, starting_after=len(kept) - 1
    )
    tail = [event.to_dict() async for event in rest]
    assert tail[: len(seen) - len(kept)] == seen[len(kept) :]
    events = kept + tail
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    end = events[-1]["response"]
    assert end == (await pair.stays_client.responses.retrieve(ident)).to_dict()
    counted = whole.usage.output_tokens, whole.usage.input_tokens
    assert (end["usage"]["output_tokens"], end["usage"]["input_tokens"]) == counted
    query = _USAGE.format(ident.removeprefix("resp_"))
    await eventually(partial(_is, pair, query, [counted]))
    assert await pair.fetch("select 1 from usage_records where outcome <> 'ok'") == []


async def _is(pair: Pair, query: str, rows: list[Any]) -> bool:
    return [tuple(row) for row in await pair.fetch(query)] == rows


_USAGE = "select output_tokens, prompt_tokens from usage_records where id = '{}'::uuid"


async def _stored(pair: Pair) -> bool:
    return bool(await pair.fetch("select 1 from response_events"))
