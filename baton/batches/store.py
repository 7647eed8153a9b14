"""The store of batches: what clients and those who check or end a batch do."""

from collections.abc import AsyncIterable, Callable, Sequence
from typing import Any
from uuid import UUID

from baton.batches import statements
from baton.batches.copying import COLUMNS, copied
from baton.batches.line_rate import BatchWork
from baton.batches.records import (
    BatchLease,
    NewBatch,
    StoredBatch,
    WrittenLine,
    parse_batch,
)
from baton.conversations.failures import failures, missing
from baton.conversations.records import StateScope
from baton.errors import BatonError, Reason
from baton.postgres.database import Database
from baton.webhooks.outbox import EventOutbox

BATCHES = "batches are unavailable", "send the requests one by one"
"""What is unavailable, and what a client may do."""
LONG_SECONDS = 60.0
"""Time for statements on all lines of a batch."""
CHECK_SECONDS = 600.0
"""Time for the check of all lines, which are stored as they are checked."""


class BatchStore:
    """Rows of batches. One per frontend, on the event loop.

    Errors, besides those that a method names: BatonError UNAVAILABLE, if the database is away or
    slow.

    Args:
        database: with the rows.
        owner: the id of this frontend.
        lease_seconds: how long a claim holds.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float) -> None:
        self._database = database
        self._outbox = EventOutbox()
        self._owner = owner
        self._seconds = lease_seconds

    @property
    def available(self) -> bool:
        """Whether the database's last response was successful."""
        return self._database.available

    async def create(self, new: NewBatch) -> StoredBatch:
        """Store a new batch, which is to be checked."""
        return StoredBatch(*(await self._fetch(statements.CREATE, *new.scope, *new[1:]))[0])

    async def get(self, scope: StateScope, batch: str) -> StoredBatch:
        """Return a batch.

        Raises:
            BatonError: NOT_FOUND.
        """
        ident = parse_batch(batch)
        rows = () if ident is None else await self._fetch(statements.GET, *scope, ident)
        if not rows:
            raise missing("batch", batch)
        return StoredBatch(*rows[0])

    async def recent(self, scope: StateScope, count: int, after: UUID | None) -> list[StoredBatch]:
        """Return the batches of a project before the one of an id, newest first."""
        rows = await self._fetch(statements.LIST, *scope, after, count)
        return [StoredBatch(*row) for row in rows]

    async def cancel(self, scope: StateScope, batch: str) -> StoredBatch:
        """Begin to cancel a batch; one that is being cancelled, or was, stays as it is.

        Raises:
            BatonError: NOT_FOUND; BATCH_ENDED: it has ended, or is about to.
        """
        ident = parse_batch(batch)
        rows = () if ident is None else await self._fetch(statements.CANCEL, *scope, ident)
        if rows:
            return StoredBatch(*rows[0])
        found = await self.get(scope, batch)
        if found.outcome != "cancelled":
            said = f"Cannot cancel a batch with status {found.status!r}."  # clients match it
            raise BatonError(Reason.BATCH_ENDED, said)
        return found

    async def expire(self) -> None:
        """Let batches end whose completion window is over."""
        await self._fetch(statements.EXPIRE)

    async def forget(self, days: int) -> int:
        """Delete batches that ended so many days ago; return how many were deleted."""
        deleted = 0
        with failures(BATCHES):
            while True:
                tag = await self._database.execute(statements.FORGET, days, seconds=LONG_SECONDS)
                count = int(tag.split()[-1])
                deleted += count
                if count < statements.AT_ONCE:
                    return deleted

    async def claim(self) -> BatchLease | None:
        """Return a batch to check or to end, which is this frontend's now; None: there is none."""
        rows = await self._fetch(statements.CLAIM_BATCH, self._owner, self._seconds)
        if not rows:
            return None
        *batch, attempt = rows[0]
        return BatchLease(StoredBatch(*batch), attempt)

    async def renew(self, lease: BatchLease) -> bool:
        """Renew a claim; return whether it still holds."""
        held = self._held(lease)
        return bool(await self._fetch(statements.RENEW_BATCH, *held, self._seconds))

    async def release(self, lease: BatchLease, seconds: float = 0.0) -> None:
        """End a claim: any frontend may claim the batch, after some seconds."""
        await self._fetch(statements.RELEASE_BATCH, *self._held(lease), seconds)

    async def start(
        self,
        lease: BatchLease,
        rows: AsyncIterable[bytes],
        details: Callable[[], tuple[int, str] | None],
    ) -> bool:
        """Store the lines of a batch, and let them run, in one transaction.

        Args:
            lease: of the batch.
            rows: its lines, as `LineRows` makes them.
            details: called after the last row: the number of lines, and the model of all of them;
                None: the batch does not start.

        Returns:
            Whether it started; otherwise nothing is stored. It does not if it was cancelled, or
            if its claim does not hold any more.

        Raises:
            BatonError: also what `rows` raises.
        """
        batch = lease.batch
        with failures(BATCHES):
            async with self._database.connection(CHECK_SECONDS) as connection:
                transaction = connection.transaction()
                await transaction.start()
                # An earlier release stored lines before the batch started.
                await connection.execute(statements.BEGIN_LINES, batch.tenant, batch.id)
                await connection.copy_to_table(
                    "batch_lines",
                    source=copied(rows),
                    columns=COLUMNS,
                    format="binary",
                    timeout=CHECK_SECONDS,
                )
                found, started = details(), []
                if found is not None:
                    held = self._held(lease)
                    started = await connection.fetch(statements.START_BATCH, *held, *found)
                await (transaction.commit() if started else transaction.rollback())
        return bool(started)

    async def fail(self, lease: BatchLease, total: int, errors: str) -> None:
        """End a batch whose input has errors, unless it was cancelled."""
        await self._end(statements.FAIL_BATCH, lease, total, errors)

    async def close_lines(self, lease: BatchLease) -> None:
        """Let no line have a result any more that has none."""
        batch = lease.batch
        await self._fetch(statements.CLOSE_LINES, batch.tenant, batch.id, seconds=LONG_SECONDS)

    async def lines(
        self, lease: BatchLease, states: Sequence[int], after: int, count: int
    ) -> list[WrittenLine]:
        """Return lines in their order, from the one after a number."""
        values = lease.batch.tenant, lease.batch.id, list(states), after, count
        rows = await self._fetch(statements.LINES_WITH, *values, seconds=LONG_SECONDS)
        return [WrittenLine(*row) for row in rows]

    async def end(self, lease: BatchLease, output: UUID | None, errors: UUID | None) -> bool:
        """End a batch with its files, which clients see from then on, and delete its lines.

        Returns:
            Whether the claim still held, and the files are there; nothing has changed otherwise.
        """
        return await self._end(statements.END_BATCH, lease, output, errors)

    async def _end(self, statement: str, lease: BatchLease, *values: object) -> bool:
        """End a batch, and tell it to webhook endpoints and its callback, in one transaction."""
        with failures(BATCHES):
            async with (
                self._database.connection(LONG_SECONDS) as connection,
                connection.transaction(),
            ):
                rows = await connection.fetch(statement, *self._held(lease), *values)
                if rows:
                    kind, batch = f"batch.{rows[0]['status']}", lease.batch
                    url = batch.callback_url
                    await self._outbox.add(connection, batch.scope, kind, batch.text, url)
        return bool(rows)

    async def work(self) -> list[BatchWork]:
        """Return what the batches that run have done, those first that expire first."""
        return [BatchWork(*row) for row in await self._fetch(statements.WORK)]

    def _held(self, lease: BatchLease) -> tuple[object, ...]:
        return lease.batch.tenant, lease.batch.id, self._owner, lease.attempt

    async def _fetch(
        self, statement: str, *values: Any, seconds: float | None = None
    ) -> Sequence[Any]:
        with failures(BATCHES):
            return await self._database.fetch(statement, *values, seconds=seconds)
