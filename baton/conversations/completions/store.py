"""The store of chat completions, over the pool of stored conversations."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from baton.conversations.completions import statements
from baton.conversations.completions.records import (
    CompletionFilter,
    FoundCompletion,
    StoredCompletion,
    object_of,
    pairs_of,
    parse_completion,
)
from baton.conversations.failures import COMPLETIONS, failures, missing
from baton.conversations.partitions import with_months
from baton.conversations.pending.pending import PendingWrites
from baton.conversations.records import StateScope
from baton.conversations.storage.storage import TenantStorage
from baton.errors import BatonError, Reason
from baton.postgres.database import Database

_DAY_MS = 86_400_000


class CompletionStore:
    """Reads and writes stored chat completions. On the event loop.

    Each method is one statement. Errors, besides those that a method names: BatonError UNAVAILABLE,
    if the database is away or slow, or its schema is older than 0005.

    Args:
        database: of stored conversations.
        retention_days: rows may be older only if this is 0.
        maintain: makes months.
        storage: limits of tenants.
    """

    def __init__(
        self,
        database: Database,
        retention_days: int,
        maintain: Callable[[], Awaitable[object]],
        storage: TenantStorage,
    ) -> None:
        self.storage = storage
        self._database = database
        self._retention_days = retention_days
        self._maintain = maintain
        self.pending: PendingWrites | None = None
        """What waits for the database; None: nothing may."""

    async def keep(self, scope: StateScope, completion: StoredCompletion) -> None:
        """Store a completion, or keep it for later if the database is away.

        Raises:
            BatonError: UNAVAILABLE: nothing may wait.
        """
        try:
            await self.write(scope, completion)
        except BatonError as error:
            if self.pending is None or error.reason is not Reason.UNAVAILABLE:
                raise
            await self.pending.add_completion(scope, completion)

    async def write(self, scope: StateScope, completion: StoredCompletion) -> None:
        """Store a completion; nothing happens if it is there."""
        values = (
            *(*scope, completion.id, completion.model, pairs_of(completion.metadata)),
            completion.messages,
            completion.body,
        )
        with failures(COMPLETIONS):
            insert = partial(self._database.execute, statements.INSERT, *values)
            await with_months(insert, self._maintain)

    async def get(self, scope: StateScope, completion: str) -> FoundCompletion:
        """Return a completion, by its id as clients have it.

        Raises:
            BatonError: NOT_FOUND.
        """
        return _found(await self._one(statements.GET, scope, completion))

    async def messages(self, scope: StateScope, completion: str) -> list[dict[str, Any]]:
        """Return the messages of a completion's request.

        Raises:
            BatonError: NOT_FOUND.
        """
        row = await self._one(statements.MESSAGES, scope, completion)
        messages: list[dict[str, Any]] = msgspec.json.decode(row["messages"])
        return messages

    async def update(
        self, scope: StateScope, completion: str, metadata: Mapping[str, str]
    ) -> FoundCompletion:
        """Replace the metadata of a completion, and return it.

        Raises:
            BatonError: NOT_FOUND.
        """
        return _found(await self._one(statements.UPDATE, scope, completion, pairs_of(metadata)))

    async def delete(self, scope: StateScope, completion: str) -> None:
        """Delete a completion.

        Raises:
            BatonError: NOT_FOUND.
        """
        await self._one(statements.DELETE, scope, completion)

    async def list(
        self,
        scope: StateScope,
        only: CompletionFilter,
        limit: int,
        after: UUID | None = None,
        *,
        descending: bool = False,
    ) -> Sequence[FoundCompletion]:
        """Return completions of a project in the order of their ids: of the times they began.

        Args:
            scope: whose.
            only: which.
            limit: the most.
            after: those that follow this one in that order.
            descending: newest first.
        """
        now = int(time.time() * 1000)
        oldest = now - self._retention_days * _DAY_MS if self._retention_days else 0
        # Months are dropped whole: a row may be older than the retention.
        first, last = UUID(int=max(0, oldest - 32 * _DAY_MS) << 80), UUID(int=now + _DAY_MS << 80)
        if after is not None:
            first, last = (first, after) if descending else (after, last)
        statement = statements.LIST_DESCENDING if descending else statements.LIST_ASCENDING
        pairs = pairs_of(only.metadata)
        if "\0" in only.model:
            return ()
        with failures(COMPLETIONS):
            rows = await self._database.fetch(
                statement, *scope, first, last, only.model, pairs, limit
            )
        return [_found(row) for row in rows]

    async def _one(self, statement: str, scope: StateScope, completion: str, *more: object) -> Any:
        ident = parse_completion(completion)
        rows: Sequence[Any] = ()
        if ident is not None:
            with failures(COMPLETIONS), self._database.budget():
                if self.pending is not None:
                    await self.pending.wait(ident, completion=True)
                rows = await self._database.fetch(statement, *scope, ident, *more)
        if not rows:
            raise missing("chat completion", completion)
        return rows[0]


def _found(row: Any) -> FoundCompletion:
    return FoundCompletion(row["id"], object_of(row["metadata"]), row["body"])
