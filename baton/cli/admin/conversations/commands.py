"""Implementation of `baton conversations …`: over Postgres, as `baton usage` and `baton db`."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from rich.console import Console

from baton.cli.admin.stored import run_stored, time_text
from baton.cli.shared.table import TextTable, show
from baton.conversations.managed.conversations import ManagedConversations
from baton.conversations.managed.records import ManagedConversation
from baton.conversations.records import StateScope
from baton.conversations.store import ConversationStore
from baton.postgres.revisions import CONVERSATIONS
from baton.settings import ConversationSettings, StateSettings

_PAGE = 1000
R = TypeVar("R")


def list_conversations(
    settings: StateSettings,
    tenant: str,
    project: str,
    limit: int,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Print a project's newest conversations.

    Raises:
        CommandError: the database is away.
    """
    scope = StateScope(tenant, project)
    found = _run(settings, lambda managed: managed.recent(scope, limit))
    if as_json:
        console.print_json(json.dumps([_shown(one) for one in found]))
        return
    table = TextTable(
        ("conversation", "created", "items", "bytes", "metadata"),
        right=frozenset({"items", "bytes"}),
    )
    for one in found:
        created = time_text(datetime.fromtimestamp(one.created_seconds, UTC))
        table.add(one.text, created, str(one.total_items), str(one.total_bytes), one.metadata)
    show(console, table)


def show_conversation(
    settings: StateSettings,
    tenant: str,
    project: str,
    conversation: str,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Print a conversation, and its items one per line as JSON.

    Raises:
        CommandError: it does not exist, or the database is away.
    """
    scope = StateScope(tenant, project)

    async def read(managed: ManagedConversations) -> tuple[ManagedConversation, list[Any]]:
        found = await managed.get(scope, conversation)
        items: list[Any] = []
        after = None
        while page := await managed.page(scope, found, _PAGE, after, newest_first=False):
            items += [json.loads(item.body) for item in page]
            after = page[-1].id
        return found, items

    found, items = _run(settings, read)
    if as_json:
        console.print_json(json.dumps({**_shown(found), "data": items}))
        return
    for value in (_shown(found), *items):
        console.print(json.dumps(value), soft_wrap=True, highlight=False, markup=False)


def delete_conversation(
    settings: StateSettings, tenant: str, project: str, conversation: str
) -> None:
    """Delete a conversation; errors as of `show_conversation`."""
    scope = StateScope(tenant, project)
    _run(settings, lambda managed: managed.delete(scope, conversation))


def _run(settings: StateSettings, what: Callable[[ManagedConversations], Awaitable[R]]) -> R:
    enabled = ConversationSettings(enabled=True)
    return run_stored(
        settings,
        "conversations",
        CONVERSATIONS,
        lambda found: what(ConversationStore(found, enabled).managed),
    )


def _shown(one: ManagedConversation) -> dict[str, Any]:
    return {
        "id": one.text,
        "created_at": one.created_seconds,
        "items": one.total_items,
        "bytes": one.total_bytes,
        "metadata": json.loads(one.metadata),
    }
