"""The store of lines: claims, and results."""

from collections.abc import Sequence
from typing import Any

from baton.batches import statements
from baton.batches.records import ActiveBatch, ClaimedLine, LineResult
from baton.batches.store import BATCHES
from baton.conversations.failures import failures
from baton.postgres.database import Database


class LineStore:
    """Claims lines and writes their results. One per frontend, on the event loop.

    Errors: BatonError UNAVAILABLE, if the database is away or slow.

    Args:
        database: with the rows.
        owner: the id of this frontend.
        lease_seconds: how long a claim holds.
    """

    def __init__(self, database: Database, owner: str, lease_seconds: float) -> None:
        self._database = database
        self._owner = owner
        self.lease_seconds = lease_seconds

    async def active(self) -> list[ActiveBatch]:
        """Return batches whose lines run, those first that expire first."""
        return [ActiveBatch(*row) for row in await self._fetch(statements.ACTIVE)]

    async def claim(self, batch: ActiveBatch, count: int) -> list[ClaimedLine]:
        """Return up to `count` lines of a batch, which are this frontend's now."""
        values = batch.tenant, batch.id, self._owner, self.lease_seconds, count
        rows = await self._fetch(statements.CLAIM_LINES, *values)
        return sorted((ClaimedLine(batch, *row) for row in rows), key=lambda line: line.number)

    async def renew(self, lines: Sequence[ClaimedLine]) -> set[tuple[Any, int]]:
        """Renew claims; return batch and number of those that still hold."""
        rows = await self._fetch(
            statements.RENEW_LINES,
            self._owner,
            self.lease_seconds,
            [line.batch.tenant for line in lines],
            [line.batch.id for line in lines],
            [line.number for line in lines],
            [line.attempt for line in lines],
        )
        return {(row["batch"], row["number"]) for row in rows}

    async def release(self, line: ClaimedLine, seconds: float = 0.0, *, failed: bool) -> None:
        """End a claim without a result: any frontend may claim the line, after some seconds."""
        held = line.batch.tenant, line.batch.id, line.number, self._owner, line.attempt
        await self._fetch(statements.RELEASE_LINE, *held, int(failed), seconds)

    async def write(self, batch: ActiveBatch, results: Sequence[LineResult]) -> set[int]:
        """Write results of lines of one batch, and count them.

        Returns:
            The numbers of lines that were still this frontend's: the others are not written.
        """
        values: list[list[Any]] = [
            [result.line.number for result in results],
            [result.line.attempt for result in results],
        ]
        values += [[result[at] for result in results] for at in range(1, len(LineResult._fields))]
        rows = await self._fetch(
            statements.WRITE_LINES, batch.tenant, batch.id, self._owner, *values
        )
        return {row["number"] for row in rows}

    async def forget_usage(self, batch: ActiveBatch, numbers: Sequence[int]) -> None:
        """Delete usage records of lines: they are in a spool."""
        await self._fetch(statements.FORGET_USAGE, batch.tenant, batch.id, list(numbers))

    async def _fetch(self, statement: str, *values: Any) -> "Sequence[Any]":
        with failures(BATCHES):
            return await self._database.fetch(statement, *values)
