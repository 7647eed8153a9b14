"""Turns of many chains while a frontend and Postgres are killed: whole or not there, once, in
order."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx

from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.postgres.database import Database
from baton.postgres.local.server import LocalPostgres
from baton.settings import ConversationSettings
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.state.frozen import frozen
from tests.support.wait import eventually

CHAINS, TURNS, KILLS = 6, 5, 2
SCOPE = StateScope("default", "")
RETRY_SECONDS = 0.05


class Chain:
    """A client that continues its last response at any frontend until it has all turns."""

    def __init__(self, number: int, urls: list[str]) -> None:
        self.last: str | None = None
        self.seen: list[tuple[str, str]] = []
        """Input and output of the turns that it saw whole."""
        self._number = number
        self._urls = urls
        self._draw = random.Random(number)

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
            while len(self.seen) < TURNS:
                text = f"chain {self._number}, turn {len(self.seen)}"
                body = {"model": MODEL, "input": text, "max_output_tokens": 4}
                body |= {"previous_response_id": self.last}
                try:
                    url = f"{self._draw.choice(self._urls)}/v1/responses"
                    answer = await http.post(url, json=body)
                except httpx.TransportError:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if answer.status_code == 200:
                    response = answer.json()
                    self.last = response["id"]
                    self.seen.append((text, _text(response["output"][-1])))
                    continue
                # Nothing that was told is unknown: a 404 would be.
                assert answer.status_code in (500, 502, 503, 504), answer.text
                await asyncio.sleep(RETRY_SECONDS)


def _text(item: dict[str, Any]) -> str:
    return "".join(part["text"] for part in item["content"])


async def test_each_turn_that_a_client_saw_is_in_its_history_once_and_in_order(
    local_cluster: Callable[..., Awaitable[LocalCluster]], own_postgres: LocalPostgres
) -> None:
    url = await Databases(own_postgres).migrated()
    settings = {
        "engine.model_name": MODEL,
        "state.url": url,
        "conversations.enabled": True,
        "conversations.statement_seconds": 5.0,
    }
    cluster = await local_cluster(
        own=True, prefill=0, decode=0, combined=1, processes=("frontend-1",), settings=settings
    )
    urls = [cluster.http, ""]

    async def start() -> None:
        service = await cluster.start("frontend-1")
        urls[1] = f"http://{service.instance.http_address}"

    await start()
    chains = [Chain(number, urls) for number in range(CHAINS)]
    running = asyncio.gather(*(chain.run() for chain in chains))
    draw = random.Random(3)
    try:
        for kill in range(KILLS):
            await asyncio.sleep(draw.random())
            if kill % 2:
                await own_postgres.kill()
                await own_postgres.start()
            else:
                cluster["frontend-1"].kill()  # type: ignore[union-attr]
                await start()
        await running
    finally:
        running.cancel()
        assert await cluster["frontend-1"].stop() == 0

    async with Database(state_settings(url)) as database:
        await database.wait_available(20)
        store = ConversationStore(database, ConversationSettings(enabled=True))
        for chain in chains:
            assert chain.last is not None
            path = await store.path(SCOPE, chain.last)
            items = [json.loads(item.body) for item in await store.items(SCOPE, path)]
            texts = [_text(item) for item in items]
            assert list(zip(texts[::2], texts[1::2], strict=True)) == chain.seen
            assert path.total_items == len(items) == 2 * TURNS
        # Nothing half is there: each item is of a response, and each response has all of its items.
        lost = await database.fetch(
            "select i.id from items i where not exists (select from responses r where "
            "r.conversation = i.conversation and i.id > r.id and i.id <= r.last_item)"
        )
        assert lost == []
        short = await database.fetch(
            "select r.id from responses r where 2 <> (select count(*) from items i where "
            "r.conversation = i.conversation and i.id > r.id and i.id <= r.last_item)"
        )
        assert short == []


async def test_only_what_is_stored_waits_for_a_frozen_postgres(
    local_cluster: Callable[..., Awaitable[LocalCluster]], own_postgres: LocalPostgres
) -> None:
    url = await Databases(own_postgres).migrated()
    settings = {
        "engine.model_name": MODEL,
        "state.url": url,
        "state.connect_seconds": 2.0,
        "conversations.enabled": True,
        "conversations.statement_seconds": 0.5,
    }
    cluster = await local_cluster(own=True, prefill=0, decode=0, combined=1, settings=settings)
    body = {"model": MODEL, "input": "Hello", "max_output_tokens": 2}
    async with httpx.AsyncClient(base_url=cluster.http, timeout=DEADLINE_SECONDS) as http:

        async def ask(**fields: Any) -> httpx.Response:
            return await http.post("/v1/responses", json=body | fields)

        async def stored(**fields: Any) -> str:
            answer = await ask(**fields)
            return answer.json()["id"] if answer.status_code == 200 else ""

        first = await eventually(stored)
        with frozen(own_postgres):
            for _ in range(3):
                assert (await ask(store=False)).status_code == 200
                for answer in await asyncio.gather(
                    ask(previous_response_id=first), http.get(f"/v1/responses/{first}")
                ):
                    assert answer.status_code == 503, answer.text
                    assert answer.headers["retry-after"] == "1"
            async with http.stream("POST", "/v1/responses", json=body | {"stream": True}) as answer:
                events = [line async for line in answer.aiter_lines() if line.startswith("event")]
            # A client is told that it ended only if it is stored.
            assert events[-1] == "event: response.failed"
        assert await eventually(partial(stored, previous_response_id=first)) != first
