"""A process's webhooks, composed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from baton.cluster.tenants import Salts
from baton.host.networks import AllowedNetworks
from baton.postgres.database import Database
from baton.postgres.revisions import WEBHOOKS
from baton.settings import StartupError, StateSettings, WebhookSettings
from baton.webhooks.deliveries import DeliveryStore
from baton.webhooks.delivery import MAX_ATTEMPTS, DeliveryPolicy, WebhookDelivery
from baton.webhooks.endpoints import WebhookEndpoints
from baton.webhooks.secrets import WebhookSecrets

if TYPE_CHECKING:
    from baton.webhooks.sender import WebhookSender  # aiohttp, which is loaded if it is used

SETTING = "webhooks.allow"
_CONNECTIONS = 4


class Webhooks(NamedTuple):
    """The webhooks of a process."""

    endpoints: WebhookEndpoints
    deliveries: DeliveryStore
    delivery: WebhookDelivery
    sender: "WebhookSender"
    networks: AllowedNetworks
    secrets: WebhookSecrets


@asynccontextmanager
async def open_webhooks(
    state: StateSettings, settings: WebhookSettings, salts: Salts
) -> AsyncIterator[Webhooks | None]:
    """Open a process's webhooks until the block ends; None if they are not enabled.

    Args:
        state: the database, of which they use a few connections of their own.
        settings: of webhooks.
        salts: secrets of tenants.

    Raises:
        StartupError: asyncpg is not installed, or there is no database.
    """
    if not settings.enabled:
        yield None
        return
    if not state.url.get_secret_value():
        raise StartupError(
            "webhooks.enabled needs a database: set state.url (BATON_STATE_URL), and create its "
            "schema with `baton db upgrade`."
        )
    from baton.webhooks.sender import WebhookSender

    own = state.model_copy(update={"connections": _CONNECTIONS})
    networks, secrets = AllowedNetworks(settings.allow, SETTING), WebhookSecrets(salts)
    async with Database(own, "webhooks", WEBHOOKS) as database:
        await database.wait_tried()
        sender = WebhookSender(networks, settings.attempt_seconds, MAX_ATTEMPTS)
        try:
            store = DeliveryStore(database)
            policy = DeliveryPolicy(
                settings.attempt_seconds, settings.retry_seconds, settings.retention_days
            )
            yield Webhooks(
                WebhookEndpoints(database, secrets),
                store,
                WebhookDelivery(store, sender, secrets, policy),
                sender,
                networks,
                secrets,
            )
        finally:
            await sender.close()
