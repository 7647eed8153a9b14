"""Reads and writes managed conversations."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from baton.conversations import statements as shared
from baton.conversations.by_month import fetch_between, month_bounds
from baton.conversations.compactions.store import CompactionStore
from baton.conversations.failures import failures, missing
from baton.conversations.ids import (
    CONVERSATION,
    RESPONSE,
    block_of,
    draw_block,
    ids_after,
    nth,
    parse_id,
    text_of,
)
from baton.conversations.managed import statements
from baton.conversations.managed.records import ManagedConversation
from baton.conversations.partitions import with_months
from baton.conversations.pending.pending import PendingWrites
from baton.conversations.records import StateScope, StoredItem, StoredPath, bytes_of, items_of
from baton.conversations.storage.records import (
    UNLIMITED,
    StorageLimits,
    too_many_conversations,
)
from baton.conversations.storage.storage import TenantStorage
from baton.errors import BatonError, Reason, invalid_field
from baton.postgres.database import Database
from baton.settings import ConversationSettings

DELETE_SECONDS = 10.0
"""Time to delete a conversation with all that it has."""
_TRIES = 8
"""Additions of items at once to one conversation, of which each comes in."""
_RECENT_ITEMS = 64
"""Items among which the last response is looked for: a client adds 20 at once."""
_HIGHEST = UUID(int=(1 << 128) - 1)

Bodies = Callable[[UUID], Sequence[str]]
"""Returns the bodies of items whose ids follow that of a block."""


class ManagedConversations:
    """Conversations that clients manage, by their ids as clients have them. On the event loop.

    Each method is one statement, except where it says otherwise. Errors, besides those that a
    method names: BatonError NOT_FOUND, if there is no such conversation of the project;
    UNAVAILABLE, if the database is away or slow.

    Args:
        database: of the store.
        settings: limits.
        maintain: makes the months.
        compactions: summaries of them.
        storage: limits of tenants.
    """

    def __init__(
        self,
        database: Database,
        settings: ConversationSettings,
        maintain: Callable[[], Awaitable[object]],
        compactions: CompactionStore,
        storage: TenantStorage,
    ) -> None:
        self._storage = storage
        self._database = database
        self._settings = settings
        self._maintain = maintain
        self._compactions = compactions
        self.pending: PendingWrites | None = None
        """What waits for the database; None: nothing may."""

    async def create(
        self,
        scope: StateScope,
        metadata: str,
        bodies: Bodies,
        count: int,
        now_ms: int,
        limits: StorageLimits = UNLIMITED,
    ) -> ManagedConversation:
        """Create a conversation.

        Args:
            scope: whose it is.
            metadata: JSON.
            bodies: of its first items.
            count: how many these are.
            now_ms: milliseconds since the Unix epoch.
            limits: of the tenant. Of conversations that are created at once, as many may exceed
                them as there are connections to the database.

        Raises:
            BatonError: INSUFFICIENT_QUOTA.
        """
        await self._storage.check_bytes(scope.tenant, limits)
        ident = draw_block(now_ms)
        written = bodies(ident)
        size = bytes_of(written)
        last = nth(ident, count)
        values = ident, last, ids_after(ident, count), written, size, metadata
        most = limits.conversations
        if most and await self._storage.counts():
            if not await self._write(statements.CREATE_WITHIN, *scope, *values, most):
                raise too_many_conversations(scope.tenant, most)
        else:
            await self._write(statements.CREATE, *scope, *values)
        return ManagedConversation(ident, 1, last, count, size, metadata)

    async def get(self, scope: StateScope, conversation: str) -> ManagedConversation:
        """Return a conversation."""
        with self._database.budget():
            await self._wait(parse_id(CONVERSATION, conversation))
            return await self._one(scope, conversation, statements.CONVERSATION)

    async def history(
        self, scope: StateScope, conversation: str
    ) -> tuple[ManagedConversation, list[StoredItem] | None]:
        """Return a conversation, and its items; None: they have to be read, because they are of
        several months, or more than a conversation may have."""
        ident = parse_id(CONVERSATION, conversation)
        if ident is None:
            raise missing("conversation", conversation)
        await self._wait(ident)
        bounds = month_bounds(ident)
        most = self._settings.max_items, self._settings.max_conversation_bytes
        with failures():
            rows = await fetch_between(
                self._database,
                statements.HISTORY_OF_CONVERSATION,
                *bounds,
                *scope,
                ident,
                *bounds,
                *most,
            )
        if not rows:
            raise missing("conversation", conversation)
        (row,) = rows
        return ManagedConversation(*row[:6]), items_of(row)

    async def recent(
        self, scope: StateScope, limit: int, before: UUID | None = None
    ) -> list[ManagedConversation]:
        """Return a project's conversations, the newest first."""
        rows = await self._fetch(statements.RECENT, *scope, before or _HIGHEST, limit)
        return [ManagedConversation(*row) for row in rows]

    async def update(
        self, scope: StateScope, conversation: str, metadata: str
    ) -> ManagedConversation:
        """Replace the metadata (JSON) of a conversation."""
        return await self._one(scope, conversation, statements.UPDATE, metadata)

    async def add(
        self,
        scope: StateScope,
        conversation: str,
        bodies: Bodies,
        count: int,
        now_ms: int,
        limits: StorageLimits = UNLIMITED,
    ) -> UUID:
        """Add items after all others, and return the block of their ids. Several statements.

        Of several additions at once, each comes in. A turn that is being computed does not: it does
        not know these items.

        Raises:
            BatonError: INVALID_FIELD: the conversation would have too many items or bytes;
                CONVERSATION_LOCKED: it moved on again and again; INSUFFICIENT_QUOTA: the tenant has
                stored as many bytes as it may.
        """
        await self._storage.check_bytes(scope.tenant, limits)
        for _ in range(_TRIES):
            found = await self.get(scope, conversation)
            block = draw_block(now_ms, found.last_item)
            written = bodies(block)
            size = bytes_of(written)
            check_room(found.end, count, size, self._settings, "items")
            ids = ids_after(block, count)
            values = found.id, ids[-1], ids, written, size, found.version
            if await self._write(statements.ADD_ITEMS, *scope, *values):
                return block
        raise locked(conversation, f"moved on {_TRIES} times meanwhile")

    async def page(
        self,
        scope: StateScope,
        conversation: ManagedConversation,
        limit: int,
        after: UUID | None,
        *,
        newest_first: bool,
    ) -> list[StoredItem]:
        """Return up to `limit` items of a conversation.

        Args:
            scope: whose it is.
            conversation: as it was read.
            limit: the most items.
            after: the last item of the page before; it may be deleted.
            newest_first: their order.
        """
        low, high = conversation.id, conversation.last_item
        if after is not None:
            low, high = (low, nth(after, -1)) if newest_first else (nth(after, 1), high)
        statement = statements.PAGE.format(order="desc" if newest_first else "asc")
        rows = await self._fetch(statement, scope.tenant, conversation.id, low, high, limit)
        return [StoredItem(*row) for row in rows]

    async def item(self, scope: StateScope, conversation: str, item: UUID | None, text: str) -> str:
        """Return the body of an item; arguments as of `delete_item`. Two statements."""
        found = await self.get(scope, conversation)
        rows = (
            () if item is None else await self._fetch(statements.ITEM, scope.tenant, found.id, item)
        )
        if not rows:
            raise missing("item", text)
        return str(rows[0]["body"])

    async def delete_item(
        self, scope: StateScope, conversation: str, item: UUID | None, text: str
    ) -> ManagedConversation:
        """Delete an item, and before it the summaries that have it; return its conversation. Two
        statements.

        Args:
            scope: whose it is.
            conversation: its id.
            item: the item's id; None: the text is none.
            text: the item's id, for errors.
        """
        ident = parse_id(CONVERSATION, conversation)
        if ident is not None and item is not None:
            await self._compactions.delete_covering(scope, ident, item)
            rows = await self._fetch(statements.DELETE_ITEM, *scope, ident, item)
            if rows:
                return ManagedConversation(*rows[0])
        await self.get(scope, conversation)
        raise missing("item", text)

    async def delete(self, scope: StateScope, conversation: str) -> None:
        """Delete a conversation, its items and its responses. One transaction.

        Items that responses outside it continue stay for these.
        """
        ident = parse_id(CONVERSATION, conversation)
        if ident is None:
            raise missing("conversation", conversation)
        await self._wait(ident)
        with failures():
            async with (
                self._database.connection(DELETE_SECONDS) as connection,
                connection.transaction(),
            ):
                row = await connection.fetchrow(statements.HIDE, *scope, ident)
                if row is None:
                    raise missing("conversation", conversation)
                bounds = scope.tenant, ident, row["last_item"]
                blocks = {
                    block_of(item["id"])
                    for item in await connection.fetch(statements.ITEM_IDS, *bounds)
                }
                among = statements.DELETE_RESPONSES.format(among=statements.AMONG)
                uses = await connection.fetchval(among, *bounds, list(blocks))
                if uses:  # by responses whose items are deleted, or by branches
                    every = statements.DELETE_RESPONSES.format(among="")
                    uses = await connection.fetchval(every, *bounds)
                if not uses:
                    await connection.execute(shared.DELETE_ITEMS, scope.tenant, ident, *bounds[1:])
                    await connection.execute(shared.DELETE_CONVERSATION, scope.tenant, ident)

    async def last_response(
        self, scope: StateScope, conversation: ManagedConversation
    ) -> str | None:
        """Return the body of the last response; None: it is not among the last items. Two
        statements."""
        ident, last = conversation.id, conversation.last_item
        statement = statements.PAGE.format(order="desc")
        items = await self._fetch(statement, scope.tenant, ident, ident, last, _RECENT_ITEMS)
        blocks = list({block_of(item["id"]) for item in items})
        rows = await self._fetch(statements.LAST_RESPONSE, *scope, ident, blocks, last)
        return rows[0]["body"] if rows else None

    async def moved_on(self, scope: StateScope, path: StoredPath) -> BatonError:
        """Return the error of a turn from a place from which a conversation has moved on. Up to two
        statements.

        Raises:
            BatonError: NOT_FOUND: it is deleted.
        """
        name = text_of(CONVERSATION, path.conversation)
        found = await self._one(scope, name, statements.CONVERSATION)
        winner = block_of(found.last_item)
        what = "its items were changed"
        if winner > path.last_item and await self._fetch(statements.HAS_RESPONSE, *scope, winner):
            what = f"response {text_of(RESPONSE, winner)!r} was stored first"
        return locked(name, f"moved on meanwhile: {what}")

    async def _wait(self, conversation: UUID | None) -> None:
        """Wait for turns that are not stored yet."""
        if self.pending is not None:
            await self.pending.wait(conversation)

    async def _one(
        self, scope: StateScope, conversation: str, statement: str, *values: object
    ) -> ManagedConversation:
        ident = parse_id(CONVERSATION, conversation)
        rows = () if ident is None else await self._fetch(statement, *scope, ident, *values)
        if not rows:
            raise missing("conversation", conversation)
        return ManagedConversation(*rows[0])

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        with failures():
            return await self._database.fetch(statement, *values)

    async def _write(self, statement: str, *values: Any) -> bool:
        """Run a statement that inserts items; return whether it wrote."""
        with failures():
            write = partial(self._database.fetch, statement, *values)
            return bool(await with_months(write, self._maintain))


def locked(conversation: str, what: str) -> BatonError:
    """Return the error of a turn that another one was faster than."""
    return BatonError(
        Reason.CONVERSATION_LOCKED,
        f"conversation {conversation[:80]!r} {what}; read its items, and retry",
        field="conversation",
    )


def check_room(
    path: StoredPath, count: int, size: int, settings: ConversationSettings, field: str
) -> None:
    """Check that items fit after a path.

    Raises:
        BatonError: INVALID_FIELD.
    """
    if path.total_items + count > settings.max_items:
        raise invalid_field(
            field,
            f"{path.total_items} items before it and {count} of input exceed the limit of "
            f"{settings.max_items} (conversations.max_items); begin a new conversation",
        )
    if path.total_bytes + size > settings.max_conversation_bytes:
        raise invalid_field(
            field,
            f"{path.total_bytes + size} bytes of items exceed the limit of "
            f"{settings.max_conversation_bytes} (conversations.max_conversation_bytes); begin a "
            "new conversation",
        )
