"""The store of endpoints."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from baton.conversations.failures import failures, missing
from baton.conversations.ids import draw_block, parse_id
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.webhooks.records import ENDPOINT, SealedSecrets, WebhookEndpoint
from baton.webhooks.secrets import WebhookSecrets, draw_secret, hint_of
from baton.webhooks.statements import endpoints as statements

MAX_ENDPOINTS = 20
"""Of a project."""
ROTATION_SECONDS = 24 * 3600.0
"""How long an old secret may sign too."""
UNAVAILABLE = "webhook endpoints are unavailable", "poll what their events are about"
_HIGHEST = UUID(int=(1 << 128) - 1)


class WebhookEndpoints:
    """Creates, reads, changes and deletes endpoints. One per process, on the event loop.

    Each method is one statement. Errors, besides those that a method names: BatonError NOT_FOUND,
    if the project has no such endpoint; UNAVAILABLE, if the database is away or slow.

    Args:
        database: that of the outbox.
        secrets: seals what is stored.
        clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        database: Database,
        secrets: WebhookSecrets,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock

    async def create(
        self, scope: StateScope, name: str, url: str, event_types: Sequence[str]
    ) -> tuple[WebhookEndpoint, str]:
        """Create an endpoint; return it and its secret, which is not shown again.

        Raises:
            BatonError: FAILED_PRECONDITION: the project has too many.
        """
        secret, now = draw_secret(), self._clock()
        sealed = await self._secrets.seal(scope.tenant, secret)
        rows = await self._fetch(
            statements.CREATE,
            *scope,
            draw_block(int(now * 1000)),
            *(name, url, list(event_types), sealed, hint_of(secret)),
            datetime.fromtimestamp(now, UTC),
            MAX_ENDPOINTS,
        )
        if not rows:
            raise BatonError(
                Reason.FAILED_PRECONDITION,
                f"the project has {MAX_ENDPOINTS} webhook endpoints already, which is the limit; "
                "delete one, or let one receive more types of events",
            )
        return WebhookEndpoint(*rows[0]), secret

    async def get(self, scope: StateScope, endpoint: str) -> WebhookEndpoint:
        """Return an endpoint."""
        return await self._one(statements.ENDPOINT, scope, endpoint)

    async def secrets(self, scope: StateScope, endpoint: UUID) -> list[str]:
        """Return the secrets with which an endpoint's events are signed."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        rows = await self._fetch(statements.SECRETS, *scope, endpoint, now)
        return await self._secrets.open(scope.tenant, SealedSecrets(*rows[0])) if rows else []

    async def recent(
        self, scope: StateScope, limit: int, before: UUID | None = None
    ) -> list[WebhookEndpoint]:
        """Return a project's endpoints, the newest first."""
        return await recent_endpoints(self._database, scope, limit, before)

    async def update(
        self,
        scope: StateScope,
        endpoint: str,
        name: str | None,
        url: str | None,
        event_types: Sequence[str] | None,
    ) -> WebhookEndpoint:
        """Change an endpoint; None: stays as it is."""
        types = None if event_types is None else list(event_types)
        now = datetime.fromtimestamp(self._clock(), UTC)
        return await self._one(statements.UPDATE, scope, endpoint, name, url, types, now)

    async def rotate(
        self, scope: StateScope, endpoint: str, *, keep_old: bool
    ) -> tuple[WebhookEndpoint, str]:
        """Replace an endpoint's secret; return the endpoint and the new secret.

        Args:
            scope: whose it is.
            endpoint: its id.
            keep_old: whether the old secret signs too, for a day.
        """
        secret, now = draw_secret(), datetime.fromtimestamp(self._clock(), UTC)
        sealed = await self._secrets.seal(scope.tenant, secret)
        until = now + timedelta(seconds=ROTATION_SECONDS) if keep_old else None
        values = sealed, hint_of(secret), until, now
        return await self._one(statements.ROTATE, scope, endpoint, *values), secret

    async def delete(self, scope: StateScope, endpoint: str) -> None:
        """Delete an endpoint, and what it has not received yet."""
        await delete_endpoint(self._database, scope, endpoint)

    async def _one(
        self, statement: str, scope: StateScope, endpoint: str, *values: object
    ) -> WebhookEndpoint:
        ident = parse_id(ENDPOINT, endpoint)
        rows = () if ident is None else await self._fetch(statement, *scope, ident, *values)
        if not rows:
            raise missing("webhook endpoint", endpoint)
        return WebhookEndpoint(*rows[0])

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        with failures(UNAVAILABLE):
            return await self._database.fetch(statement, *values)


async def recent_endpoints(
    database: Database, scope: StateScope, limit: int, before: UUID | None = None
) -> list[WebhookEndpoint]:
    """Return a project's endpoints, as `WebhookEndpoints.recent`."""
    with failures(UNAVAILABLE):
        rows = await database.fetch(statements.RECENT, *scope, before or _HIGHEST, limit)
    return [WebhookEndpoint(*row) for row in rows]


async def delete_endpoint(database: Database, scope: StateScope, endpoint: str) -> None:
    """Delete an endpoint, as `WebhookEndpoints.delete`."""
    ident = parse_id(ENDPOINT, endpoint)
    with failures(UNAVAILABLE):
        rows = () if ident is None else await database.fetch(statements.DELETE, *scope, ident)
    if not rows:
        raise missing("webhook endpoint", endpoint)
