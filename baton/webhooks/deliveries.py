"""The store of deliveries, and the log of their attempts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from baton.conversations.records import StateScope
from baton.postgres.database import Database
from baton.webhooks.places import EventReceiver
from baton.webhooks.records import ClaimedDelivery, SealedSecrets, WebhookAttempt
from baton.webhooks.statements import attempts
from baton.webhooks.statements import deliveries as statements

_FORGET_AT_ONCE = 10_000
"""Rows of one statement: a transaction short enough to block no others."""


class DeliveryStore:
    """Claims deliveries and ends them. One per process, on the event loop.

    Errors: StateError, if the database is away or slow.

    Args:
        database: that of the outbox.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def available(self) -> bool:
        """Whether the database's last response was successful, and it has the tables."""
        return self._database.available

    async def receivers(self, now: float, most: int) -> list[EventReceiver]:
        """Return receivers with deliveries that are due.

        Args:
            now: seconds since the Unix epoch.
            most: the most, which tenants share equally.
        """
        rows = await self._database.fetch(statements.RECEIVERS, _time(now), most)
        return [EventReceiver(*row) for row in rows]

    async def claim(
        self, now: float, lease_until: float, places: Mapping[EventReceiver, int]
    ) -> list[ClaimedDelivery]:
        """Return deliveries that are due; until the lease ends, no other process gets them.

        Args:
            now: seconds since the Unix epoch.
            lease_until: likewise.
            places: the most of each receiver.
        """
        columns = [one.tenant for one in places], [one.endpoint for one in places]
        values = _time(now), _time(lease_until), *columns, list(places.values())
        rows = await self._database.fetch(statements.CLAIM, *values)
        return [
            ClaimedDelivery(
                StateScope(row["tenant"], row["project"]),
                *(row["endpoint"], row["event"], row["type"], row["body"], row["attempt"]),
                row["url"],
                SealedSecrets(row["secret"], row["old_secret"]) if row["secret"] else None,
            )
            for row in rows
        ]

    async def finish(
        self, claimed: ClaimedDelivery, attempt: WebhookAttempt, due: float | None
    ) -> None:
        """Log an attempt, and end or postpone its delivery. One statement.

        If another process has the delivery by now, it stays as that one left it.

        Args:
            claimed: the delivery.
            attempt: what came of it.
            due: when it is due again; None: it has ended.
        """
        later = None if due is None else _time(due)
        await self._database.execute(statements.FINISH, *claimed.scope, *attempt, later)

    async def drop(self, claimed: ClaimedDelivery) -> None:
        """Delete a delivery, unless another process has it by now."""
        values = claimed.scope.tenant, claimed.endpoint, claimed.event, claimed.attempt
        await self._database.execute(statements.DROP, *values)

    async def log(self, scope: StateScope, attempt: WebhookAttempt) -> None:
        """Add an attempt to the log."""
        await self._database.execute(attempts.ADD, *scope, *attempt)

    async def recent(
        self, scope: StateScope, limit: int, endpoint: UUID | None, event: UUID | None
    ) -> list[WebhookAttempt]:
        """Return a project's attempts, the latest first.

        Args:
            scope: whose they are.
            limit: the most.
            endpoint: only those at it; None: at all.
            event: only those of it; None: of all.
        """
        rows = await self._database.fetch(attempts.RECENT, *scope, endpoint, event, limit)
        return [WebhookAttempt(*row) for row in rows]

    async def waiting(self, scope: StateScope) -> dict[UUID, int]:
        """Return how many events each endpoint of a project has not received yet."""
        rows = await self._database.fetch(statements.WAITING, *scope)
        return {row["endpoint"]: row["count"] for row in rows}

    async def backlog(self) -> tuple[int, UUID | None]:
        """Return the number of all deliveries, and the oldest event of them."""
        (row,) = await self._database.fetch(statements.OLDEST)
        return row["count"], UUID(row["oldest"]) if row["oldest"] else None

    async def forget(self, before: float) -> int:
        """Delete attempts that began before a time, in seconds; return how many."""
        forgotten = 0
        while True:
            values = _time(before), _FORGET_AT_ONCE
            done = await self._database.execute(attempts.FORGET, *values)
            count = int(done.rpartition(" ")[2])
            forgotten += count
            if count < _FORGET_AT_ONCE:
                return forgotten


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
