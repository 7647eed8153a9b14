"""The store of conversations and responses, over a pool of connections of its own."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from baton.conversations import statements
from baton.conversations.by_month import fetch_between, month_bounds, write_turn
from baton.conversations.compactions.store import CompactionStore
from baton.conversations.completions.store import CompletionStore
from baton.conversations.failures import failures, missing
from baton.conversations.ids import RESPONSE, block_of, ids_after, milliseconds_of, nth, parse_id
from baton.conversations.managed.conversations import ManagedConversations
from baton.conversations.partitions import maintain, with_months
from baton.conversations.pending.pending import PendingWrites
from baton.conversations.records import (
    PathPart,
    StateScope,
    StoredItem,
    StoredPath,
    StoredResponse,
    Turn,
    bytes_of,
    items_of,
)
from baton.conversations.storage.storage import TenantStorage
from baton.errors import BatonError, Reason
from baton.postgres.budget import seconds_left
from baton.postgres.connecting import DuplicateError
from baton.postgres.database import Database
from baton.settings import ConversationSettings

if TYPE_CHECKING:
    import asyncpg

YOUNG_SECONDS = 300.0
"""A response that began so recently may wait at another frontend: it is looked for again."""
_POLLS = (0.05, 0.1, 0.2, 0.2, 0.2)
_POLL_SECONDS = 0.1
"""What a poll may take."""
MAINTENANCE_SECONDS = 60.0
"""Time to make and drop months, including waiting for another process that does."""


class ConversationStore:
    """Reads and writes stored responses. One per frontend, on the event loop.

    Each method is one statement, except deletions. Errors, besides those that a method names:
    BatonError UNAVAILABLE, if the database is away or slow.

    Args:
        database: of this store alone.
        settings: limits and retention.
    """

    def __init__(self, database: Database, settings: ConversationSettings) -> None:
        self.database = database
        self.settings = settings
        self.compactions = CompactionStore(database)
        """Summaries."""
        self.storage = TenantStorage(database)
        """What tenants have stored."""
        self.managed = ManagedConversations(
            database, settings, self.maintain, self.compactions, self.storage
        )
        """Those that clients manage, with their items."""
        days = settings.retention_days
        self.completions = CompletionStore(database, days, self.maintain, self.storage)
        self.pending: PendingWrites | None = None
        """What waits for the database; None: nothing may."""

    async def path(self, scope: StateScope, response: str) -> StoredPath:
        """Return the path of a response, by its id as clients have it.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_id(RESPONSE, response)
        rows = await self._rows_of(statements.PATH_OF_RESPONSE, scope, ident)
        if not rows:
            raise missing("response", response)
        return _path(rows[0])

    async def history(
        self, scope: StateScope, response: str
    ) -> tuple[StoredPath, list[StoredItem] | None]:
        """Return the path of a response, and its items; None: `items` has to read them, because
        they are of several months or conversations, or more than a conversation may have.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_id(RESPONSE, response)
        bounds = () if ident is None else month_bounds(ident)
        most = self.settings.max_items, self.settings.max_conversation_bytes
        rows = await self._rows_of(statements.HISTORY_OF_RESPONSE, scope, ident, *bounds, *most)
        if not rows:
            raise missing("response", response)
        (row,) = rows
        return _path(row), items_of(row)

    async def items(self, scope: StateScope, path: StoredPath) -> list[StoredItem]:
        """Return all items of a path, in order."""
        conversations, last = zip(*path.parts, strict=True)
        first = min(conversations)
        if len(conversations) == 1:
            return await self.items_between(scope, path.conversation, first, path.last_item)
        bounds = first, max(last)
        return await self._items_of(
            statements.ITEMS_OF_PARTS, bounds, scope.tenant, conversations, last, *bounds
        )

    async def items_between(
        self, scope: StateScope, conversation: UUID, first: UUID, last: UUID
    ) -> list[StoredItem]:
        """Return the items of a conversation between two ids, inclusive, in order."""
        bounds = first, last
        return await self._items_of(
            statements.ITEMS_BETWEEN, bounds, scope.tenant, conversation, *bounds
        )

    async def named_items(self, scope: StateScope, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return the bodies of items of stored responses, by their ids; others are left out."""
        if not ids:
            return {}
        blocks = {block_of(ident) for ident in ids}
        rows = await self._fetch(
            statements.NAMED_ITEMS, scope, list(blocks), list(ids), min(blocks), max(ids)
        )
        return {row["id"]: row["body"] for row in rows}

    async def response(self, scope: StateScope, response: str) -> StoredResponse:
        """Return a response, by its id as clients have it.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_id(RESPONSE, response)
        rows = await self._rows_of(statements.RESPONSE, scope, ident)
        if not rows:
            raise missing("response", response)
        return StoredResponse(*rows[0])

    async def input_items(self, scope: StateScope, response: StoredResponse) -> list[StoredItem]:
        """Return the input items of a response, in order."""
        first, last = nth(response.id, 1), nth(response.id, response.inputs)
        return await self.items_between(scope, response.conversation, first, last)

    async def output_items(self, scope: StateScope, response: StoredResponse) -> list[StoredItem]:
        """Return the output items of a response, in order."""
        first = nth(response.id, response.inputs + 1)
        return await self.items_between(scope, response.conversation, first, response.last_item)

    async def write(
        self, scope: StateScope, turn: Turn, connection: "asyncpg.Connection | None" = None
    ) -> None:
        """Store a response with its items, whole or not at all.

        A turn that follows a place from which a chain has moved on begins another one.

        Args:
            scope: whose it is.
            turn: the response.
            connection: in a transaction, whose errors are the caller's; None: any.

        Raises:
            BatonError: ABORTED: what it follows was deleted; CONVERSATION_LOCKED: a conversation
                that a client manages has moved on; NOT_FOUND: that one was deleted.
        """
        follows = turn.follows
        write = self._write if connection is None else partial(_write, connection)
        if follows is None:
            await write(statements.BEGIN_TURN, scope, turn)
            return
        if follows.extends and await write(
            statements.CONTINUE_TURN, scope, turn, follows.conversation, follows.version
        ):
            return
        if follows.extends and not follows.hidden:
            raise await self.managed.moved_on(scope, follows)
        conversations, last = zip(*follows.parts, strict=True)
        if not await write(
            statements.BRANCH_TURN,
            scope,
            turn,
            follows.conversation,
            follows.total_items,
            follows.total_bytes,
            conversations,
            last,
        ):
            raise BatonError(Reason.ABORTED, "what this response continues was deleted meanwhile")

    async def keep(self, scope: StateScope, turn: Turn) -> None:
        """Store a turn as `write`, or keep it for later if the database is away.

        Raises:
            BatonError: as of `write`; UNAVAILABLE only if nothing may wait.
        """
        try:
            await self.write(scope, turn)
        except BatonError as error:
            if self.pending is None or error.reason is not Reason.UNAVAILABLE:
                raise
            await self.pending.add_turn(scope, turn)

    async def write_late(self, scope: StateScope, turn: Turn) -> None:
        """Store a turn whose client knows its end already; do nothing if it is there.

        It becomes part of its conversation even if that has moved on.

        Raises:
            BatonError: ABORTED: what it follows was deleted.
        """
        follows = turn.follows
        try:
            if follows is None or follows.hidden or not follows.extends:
                await self.write(scope, turn)
            elif not await self._write(
                statements.APPEND_TURN, scope, turn, follows.conversation, follows.version
            ):
                raise BatonError(Reason.ABORTED, "its conversation was deleted meanwhile")
        except DuplicateError:
            return

    async def delete_response(self, scope: StateScope, response: str) -> None:
        """Delete a response. Its items are deleted with the last response whose path has them.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_id(RESPONSE, response)
        if ident is None:
            raise missing("response", response)
        with failures(), self.database.budget():
            if self.pending is not None:
                await self.pending.wait(ident)
            async with self.database.connection() as connection, connection.transaction():
                conversation = await connection.fetchval(statements.DELETE_RESPONSE, *scope, ident)
                if conversation is None:
                    raise missing("response", response)
                while conversation is not None:
                    conversation = await _release(connection, scope.tenant, conversation)

    async def maintain(self, now: datetime | None = None) -> tuple[int, int]:
        """Make the next months, and drop those beyond the retention; see `partitions.maintain`."""
        now = now or datetime.now(UTC)
        days = self.settings.retention_days
        oldest = (now - timedelta(days=days)).date() if days else None
        async with self.database.connection(MAINTENANCE_SECONDS) as connection:
            return await maintain(connection, now.date(), oldest)

    async def _rows_of(
        self, statement: str, scope: StateScope, ident: UUID | None, *more: object
    ) -> Sequence[Any]:
        """Return the row of a response, which may be about to be stored, here or elsewhere."""
        if ident is None:
            return ()
        with self.database.budget():
            if self.pending is not None:
                await self.pending.wait(ident)
            rows = await self._fetch_response(statement, scope, ident, *more)
            age = time.time() - milliseconds_of(ident) / 1000
            if self.pending is None or rows or not 0 <= age < YOUNG_SECONDS:
                return rows
            for seconds in _POLLS:
                if seconds_left() < seconds + _POLL_SECONDS:
                    break
                await asyncio.sleep(seconds)
                if rows := await self._fetch_response(statement, scope, ident, *more):
                    break
            return rows

    async def _fetch_response(
        self, statement: str, scope: StateScope, ident: UUID, *more: object
    ) -> Sequence[Any]:
        with failures():
            values = *scope, ident, *more
            return await fetch_between(self.database, statement, ident, ident, *values)

    async def _items_of(
        self, statement: str, bounds: tuple[UUID, UUID], *values: Any
    ) -> list[StoredItem]:
        with failures():
            rows = await fetch_between(self.database, statement, *bounds, *values)
        return list(map(StoredItem._make, rows))

    async def _fetch(self, statement: str, scope: StateScope, *values: Any) -> Sequence[Any]:
        with failures():
            return await self.database.fetch(statement, *scope, *values)

    async def _write(self, statement: str, scope: StateScope, turn: Turn, *more: object) -> bool:
        """Run the statement of a turn; return whether it wrote."""
        values = *scope, *_values(turn), *more
        with failures():
            write = partial(write_turn, self.database, statement, turn.id, *values)
            return bool(await with_months(write, self.maintain))


def _path(row: "asyncpg.Record") -> StoredPath:
    prefix = zip(row["prefix_conversations"], row["prefix_items"], strict=True)
    return StoredPath(
        row["conversation"],
        row["version"],
        row["last_item"],
        row["hidden"] and row["last_item"] == row["end"],
        row["total_items"],
        row["total_bytes"],
        tuple(PathPart(*part) for part in prefix),
        row["hidden"],
    )


async def _write(
    connection: "asyncpg.Connection", statement: str, scope: StateScope, turn: Turn, *more: object
) -> bool:
    """Run the statement of a turn in a transaction, which a missing partition would end."""
    return bool(await connection.fetch(statement, *scope, *_values(turn), *more))


def _values(turn: Turn) -> tuple[object, ...]:
    return (
        turn.id,
        turn.last_item,
        ids_after(turn.id, len(turn.items)),
        turn.items,
        turn.inputs,
        turn.status,
        turn.body,
        bytes_of(turn.items),
    )


async def _release(connection: Any, tenant: str, conversation: UUID) -> UUID | None:
    """Count a use of a conversation less; return the one before it, if that was its last one."""
    row = await connection.fetchrow(statements.RELEASE, tenant, conversation)
    if row is None or row["uses"] > 0 or not row["hidden"]:
        return None
    bounds = conversation, row["last_item"]
    await connection.execute(statements.DELETE_ITEMS, tenant, conversation, *bounds)
    await connection.execute(statements.DELETE_CONVERSATION, tenant, conversation)
    before: list[UUID] = row["prefix_conversations"]
    return before[-1] if before else None
