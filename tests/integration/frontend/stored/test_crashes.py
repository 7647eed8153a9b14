"""Turns of conversations while a frontend and Postgres are killed: whole or not there, once, in
order."""

import asyncio
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
from bench.conversations.turns import Errors, TurnClient
from bench.conversations.verdict import differences, half_turns, history_of
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.state.frozen import frozen
from tests.support.wait import eventually

CLIENTS, TURNS, KILLS = 6, 5, 2
SCOPE = StateScope("default", "")


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
    choice, errors = random.Random(1), Errors()
    clients = [
        TurnClient(
            f"talk-{number}",
            lambda: choice.choice(urls),
            MODEL,
            SCOPE,
            errors,
            managed=number % 2 == 0,
            stream=number % 3 == 0,
        )
        for number in range(CLIENTS)
    ]
    running = asyncio.gather(*map(converse, clients))
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
        for client in clients:
            assert not list(differences(client, await history_of(store, client)))
        assert await half_turns(database) == []
    assert errors.wrong == []


async def converse(client: TurnClient) -> None:
    """Let a client have its turns."""
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        await client.begin(http)
        for _ in range(TURNS):
            await client.turn(http)


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
