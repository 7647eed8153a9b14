"""A frontend is killed while it delivers: another one delivers the same events."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from standardwebhooks import Webhook

from baton.conversations.records import StateScope
from baton.postgres.database import Database
from baton.postgres.revisions import WEBHOOKS
from baton.webhooks.outbox import EventOutbox
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL
from tests.support.network.listener import listening
from tests.support.services.cluster import LocalCluster
from tests.support.state.databases import Databases, state_settings
from tests.support.wait import eventually
from tests.support.webhooks.receiver import OK, Received, Receiver

pytestmark = pytest.mark.xdist_group("openai")

RECEIVERS, EVENTS = 6, 5
SCOPE = StateScope("default", "")
LATER = "update webhook_deliveries set due = due - interval '1 hour'"
"""What an hour does: frontends compare `due` with their clocks."""


class HeldReceiver(Receiver):
    """Answers nothing until it is released."""

    def __init__(self, released: asyncio.Event) -> None:
        super().__init__()
        self._released = released
        self.answered: list[Received] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (found := await self.receive(reader)) is not None:
            held = asyncio.ensure_future(self._released.wait())
            broken = asyncio.ensure_future(reader.read())
            await asyncio.wait((held, broken), return_when=asyncio.FIRST_COMPLETED)
            held.cancel()
            if broken.done():
                return
            broken.cancel()
            await asyncio.wait([broken])
            self.answered.append(found)
            writer.write(OK)
            await writer.drain()


async def test_what_a_killed_frontend_delivers_another_one_delivers(
    local_cluster: Callable[..., Awaitable[LocalCluster]], databases: Databases
) -> None:
    import openai  # takes a second

    url, released = await databases.migrated(), asyncio.Event()
    settings = {
        "engine.model_name": MODEL,
        "state.url": url,
        "webhooks.enabled": True,
        "webhooks.allow": ("127.0.0.0/8",),
        "webhooks.attempt_seconds": 60.0,
    }
    cluster = await local_cluster(
        own=True, prefill=0, decode=0, combined=1, processes=("frontend-1",), settings=settings
    )
    receivers = [HeldReceiver(released) for _ in range(RECEIVERS)]
    async with AsyncExitStack() as stack:
        client: Any = await stack.enter_async_context(
            openai.AsyncOpenAI(base_url=f"{cluster.http}/v1", api_key="none", max_retries=9)
        )
        database = await stack.enter_async_context(
            Database(state_settings(url), "webhooks", WEBHOOKS)
        )
        await database.wait_available(DEADLINE_SECONDS)
        secrets = []
        for one in receivers:
            one.port = await stack.enter_async_context(listening(one.serve))
            made = await client.webhooks.create(
                name="ends", url=one.url, event_types=["batch.completed"]
            )
            secrets.append(made.signing_secret)
        outbox, begun = EventOutbox(), lambda: sum(len(one.requests) for one in receivers)
        for number in range(EVENTS):
            await outbox.add(database, SCOPE, "batch.completed", f"batch_{number}")
        await eventually(lambda: begun() == RECEIVERS)  # frontend-0 has its places
        await cluster.start("frontend-1")
        await eventually(lambda: begun() == 2 * RECEIVERS)
        lost = [one.requests[1].id for one in receivers]
        cluster["frontend-1"].kill()  # type: ignore[union-attr]
        assert await cluster["frontend-1"].stop() != 0
        released.set()
        others = RECEIVERS * (EVENTS - 1)
        await eventually(lambda: sum(len(one.answered) for one in receivers) == others)
        for one, ident in zip(receivers, lost, strict=True):
            assert ident not in {found.id for found in one.answered}
        await database.execute(LATER)
        await eventually(lambda: sum(len(one.answered) for one in receivers) == others + RECEIVERS)
    for one, secret, ident in zip(receivers, secrets, lost, strict=True):
        assert len({found.id for found in one.answered}) == EVENTS
        assert Counter(one.ids)[ident] == 2
        for found in one.answered:
            Webhook(secret).verify(found.body, found.headers)
