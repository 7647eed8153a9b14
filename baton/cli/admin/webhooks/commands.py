"""Implementation of `baton webhooks …`: over Postgres, as `baton conversations`."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from rich.console import Console

from baton.cli.admin.stored import run_stored, time_text
from baton.cli.shared.table import TextTable, show
from baton.conversations.failures import missing
from baton.conversations.ids import parse_id, text_of
from baton.conversations.records import StateScope
from baton.postgres.database import Database
from baton.postgres.revisions import WEBHOOKS
from baton.settings import StateSettings
from baton.webhooks.deliveries import DeliveryStore
from baton.webhooks.endpoints import MAX_ENDPOINTS, recent_endpoints
from baton.webhooks.endpoints import delete_endpoint as delete
from baton.webhooks.events import EVENT
from baton.webhooks.records import ENDPOINT, WebhookAttempt, WebhookEndpoint

R = TypeVar("R")


class AttemptFilter(NamedTuple):
    """Which attempts are listed."""

    endpoint: str
    """Empty: all."""
    event: str
    """Empty: all."""
    limit: int


def list_endpoints(
    settings: StateSettings, tenant: str, project: str, console: Console, *, as_json: bool
) -> None:
    """Print a project's endpoints.

    Raises:
        CommandError: the database is away.
    """
    scope = StateScope(tenant, project)

    async def read(database: Database) -> tuple[list[WebhookEndpoint], dict[UUID, int]]:
        found = await recent_endpoints(database, scope, MAX_ENDPOINTS)
        return found, await DeliveryStore(database).waiting(scope)

    found, waiting = _run(settings, read)
    if as_json:
        shown = [
            {
                "id": one.text,
                "name": one.name,
                "url": one.url,
                "event_types": one.event_types,
                "created_at": one.created_seconds,
                "waiting": waiting.get(one.id, 0),
            }
            for one in found
        ]
        console.print_json(json.dumps(shown))
        return
    table = TextTable(
        ("endpoint", "created", "name", "url", "waiting", "events"), right=frozenset({"waiting"})
    )
    for one in found:
        created = time_text(datetime.fromtimestamp(one.created_seconds, UTC))
        events = ", ".join(one.event_types)
        table.add(one.text, created, one.name, one.url, str(waiting.get(one.id, 0)), events)
    show(console, table)


def list_attempts(
    settings: StateSettings,
    tenant: str,
    project: str,
    only: AttemptFilter,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Print attempts to deliver events.

    Raises:
        CommandError: an id is none, or the database is away.
    """
    scope = StateScope(tenant, project)

    async def read(database: Database) -> list[WebhookAttempt]:
        endpoint = _id(ENDPOINT, "webhook endpoint", only.endpoint)
        event = _id(EVENT, "event", only.event)
        return await DeliveryStore(database).recent(scope, only.limit, endpoint, event)

    found = _run(settings, read)
    if as_json:
        console.print_json(json.dumps([_shown(one) for one in found]))
        return
    table = TextTable(
        ("began", "endpoint", "event", "type", "attempt", "seconds", "outcome", "detail"),
        right=frozenset({"attempt", "seconds"}),
    )
    for one in found:
        table.add(
            time_text(one.began),
            text_of(ENDPOINT, one.endpoint),
            text_of(EVENT, one.event),
            one.type,
            str(one.attempt),
            f"{one.seconds:.3f}",
            one.outcome,
            one.detail,
        )
    show(console, table)


def delete_endpoint(settings: StateSettings, tenant: str, project: str, endpoint: str) -> None:
    """Delete an endpoint.

    Raises:
        CommandError: it does not exist, or the database is away.
    """
    scope = StateScope(tenant, project)
    _run(settings, lambda database: delete(database, scope, endpoint))


def _run(settings: StateSettings, what: Callable[[Database], Awaitable[R]]) -> R:
    return run_stored(settings, "webhooks", WEBHOOKS, what)


def _id(prefix: str, what: str, text: str) -> UUID | None:
    """Return the id of a text; None: it is empty."""
    found = parse_id(prefix, text)
    if text and found is None:
        raise missing(what, text)
    return found


def _shown(one: WebhookAttempt) -> dict[str, Any]:
    return {
        "endpoint": text_of(ENDPOINT, one.endpoint),
        "event": text_of(EVENT, one.event),
        "type": one.type,
        "attempt": one.attempt,
        "began_at": one.began.timestamp(),
        "seconds": round(one.seconds, 3),
        "status": one.status,
        "outcome": one.outcome,
        "detail": one.detail,
    }
