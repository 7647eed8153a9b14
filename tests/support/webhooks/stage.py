"""Deliveries with a real database, and a clock that tests move."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from ssl import SSLContext
from typing import Any

from baton.conversations.records import StateScope
from baton.host.networks import AllowedNetworks
from baton.postgres.database import Database
from baton.postgres.revisions import WEBHOOKS
from baton.webhooks.deliveries import DeliveryStore
from baton.webhooks.delivery import MAX_ATTEMPTS, DeliveryPolicy, WebhookDelivery
from baton.webhooks.endpoints import WebhookEndpoints
from baton.webhooks.events import EVENT_TYPES
from baton.webhooks.opening import SETTING
from baton.webhooks.outbox import EventOutbox
from baton.webhooks.records import WebhookAttempt, WebhookEndpoint
from baton.webhooks.secrets import WebhookSecrets
from baton.webhooks.sender import WebhookSender
from tests.support.clock import DEADLINE_SECONDS
from tests.support.state.databases import state_settings

OURS = StateScope("acme", "proj_1")
DAY = 24 * 3600.0
COMPLETED = "response.completed"


class OneSalt:
    """The same secret for all tenants."""

    async def get(self, tenant: str) -> bytes:
        return tenant.encode().ljust(32, b".")


@dataclass
class MovedClock:
    """This machine's clock, moved on."""

    by: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.by


@dataclass
class WebhookStage:
    """The webhooks of one process."""

    database: Database
    clock: MovedClock
    endpoints: WebhookEndpoints
    store: DeliveryStore
    delivery: WebhookDelivery
    sender: WebhookSender
    outbox: EventOutbox = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = EventOutbox(self.clock)

    async def endpoint(
        self, url: str, types: Sequence[str] = EVENT_TYPES
    ) -> tuple[WebhookEndpoint, str]:
        """Create an endpoint; return it and its secret."""
        return await self.endpoints.create(OURS, "ours", url, types)

    async def add(self, subject: str = "resp_1", kind: str = COMPLETED) -> None:
        """Write an event."""
        await self.outbox.add(self.database, OURS, kind, subject)

    async def deliver(self, seconds: float = 0.0) -> None:
        """Attempt all that is due after some time, and wait for the ends."""
        self.clock.by += seconds
        while await self.delivery.step():
            await self.delivery.idle()

    async def attempts(self) -> list[WebhookAttempt]:
        """Return all attempts, in order."""
        return (await self.store.recent(OURS, 1000, None, None))[::-1]

    async def due(self) -> list[datetime]:
        """Return when deliveries are due."""
        rows = await self.database.fetch("select due from webhook_deliveries order by due")
        return [row["due"] for row in rows]


@asynccontextmanager
async def webhook_stage(
    url: str,
    networks: Sequence[str] = ("127.0.0.0/8",),
    seconds: float = DEADLINE_SECONDS,
    clock: MovedClock | None = None,
    tls: SSLContext | None = None,
    **fields: Any,
) -> AsyncIterator[WebhookStage]:
    """Compose the webhooks of a process until the block ends.

    Args:
        url: of the database.
        networks: where receivers may be.
        seconds: for an attempt.
        clock: its own; None: a new one.
        tls: authorities of receivers.
        fields: of the policy.
    """
    clock = clock or MovedClock()
    async with AsyncExitStack() as stack:
        settings = state_settings(url)
        database = await stack.enter_async_context(Database(settings, "webhooks", WEBHOOKS))
        await database.wait_available(20)
        sender = WebhookSender(AllowedNetworks(networks, SETTING), seconds, MAX_ATTEMPTS, tls)
        stack.push_async_callback(sender.close)
        secrets, store = WebhookSecrets(OneSalt()), DeliveryStore(database)
        policy = DeliveryPolicy(
            **({"attempt_seconds": seconds, "retry_seconds": DAY, "retention_days": 30} | fields)
        )
        delivery = WebhookDelivery(store, sender, secrets, policy, clock)
        stack.push_async_callback(_stop, delivery)
        yield WebhookStage(
            database,
            clock,
            WebhookEndpoints(database, secrets, clock),
            store,
            delivery,
            sender,
        )


async def _stop(delivery: WebhookDelivery) -> None:
    """Cancel what is in progress."""
    task = asyncio.ensure_future(delivery.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
