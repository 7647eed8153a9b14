"""The store of summaries."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from baton.conversations.compactions import statements
from baton.conversations.compactions.records import CompactedItems, StoredCompaction
from baton.conversations.failures import failures
from baton.conversations.records import StateScope, StoredPath
from baton.postgres.database import Database

_LATEST = 8
"""Summaries that are read of a path: claims of later ones may be before the last written one."""


class CompactionStore:
    """Claims, writes and reads summaries. One per frontend, on the event loop.

    A summary is written once: by the frontend that claims it, under a lease. In a schema of an
    earlier release there are none. Errors: BatonError UNAVAILABLE, if the database is away or slow.

    Args:
        database: of the conversations.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._exists = False
        """Whether the schema is known to have the table."""

    async def latest(self, scope: StateScope, path: StoredPath) -> list[StoredCompaction]:
        """Return the last summaries of what is before a place, and claims of some, the last one
        first."""
        conversations, last = zip(*path.parts, strict=True)
        rows = await self._fetch(statements.LATEST, scope.tenant, conversations, last, _LATEST)
        return [StoredCompaction(*row) for row in rows]

    async def claim(
        self, scope: StateScope, items: CompactedItems, owner: str, seconds: float
    ) -> bool:
        """Begin to write a summary; return whether it is the caller's.

        Args:
            scope: whose it is.
            items: what it stands for.
            owner: a name of this attempt.
            seconds: of the lease.
        """
        return bool(await self._fetch(statements.CLAIM, scope.tenant, *items, owner, seconds))

    async def write(self, scope: StateScope, items: CompactedItems, owner: str, body: str) -> bool:
        """Write the body of a claimed summary; return whether it was still the caller's."""
        values = scope.tenant, items.conversation, items.last_item, owner, body
        return bool(await self._fetch(statements.WRITE, *values))

    async def release(
        self, scope: StateScope, items: CompactedItems, owner: str, error: str, seconds: float
    ) -> None:
        """End a claim without a summary: any frontend may claim it, after some seconds.

        Args:
            scope: whose it is.
            items: what it stands for.
            owner: the name of the attempt.
            error: the code of why there is none.
            seconds: until it can be claimed.
        """
        values = scope.tenant, items.conversation, items.last_item, owner, error, seconds
        await self._fetch(statements.RELEASE, *values)

    async def delete_covering(self, scope: StateScope, conversation: UUID, item: UUID) -> None:
        """Delete all summaries that may say what an item of a conversation says."""
        await self._fetch(statements.DELETE_COVERING, *scope, conversation, item)

    async def _fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        with failures():
            if not self._exists:
                rows = await self._database.fetch(statements.EXISTS)
                self._exists = rows[0]["exists"]
            return await self._database.fetch(statement, *values) if self._exists else ()
