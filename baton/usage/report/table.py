"""Queries over the usage records in Postgres."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from baton.postgres.connecting import driver
from baton.postgres.database import Database
from baton.usage.report.question import Question, UsageGroup
from baton.usage.report.sql import group_of, select, select_latest

if TYPE_CHECKING:
    import asyncpg

_GRACE_SECONDS = 0.5
"""Postgres ends a statement by itself; after this additional time the client gives up."""
_FEW_ROWS = 100
"""Rows that take about 0.3 ms to process."""

T = TypeVar("T")


class TooLongError(Exception):
    """A query takes too long: use a smaller one."""


class Freshness(NamedTuple):
    """Age of the records; seconds since the Unix epoch, by the clock of Postgres."""

    now: float
    latest: float | None
    """When the newest record began; None: there is none."""


class UsageTable:
    """Answers queries from the table `usage_records`. Lives on the event loop.

    Its connections are limited, so that the delivery of records does not wait for queries.

    Args:
        database: with the schema of this release.
        at_once: concurrent queries; further ones wait.
    """

    def __init__(self, database: Database, at_once: int = 2) -> None:
        self._database = database
        self._turn = asyncio.Semaphore(at_once)

    async def read(
        self, question: Question, seconds: float, most: int | None = None
    ) -> list[UsageGroup]:
        """Return the groups that answer a query, by time.

        Args:
            question: the query.
            seconds: time limit for all of it.
            most: groups to return, the earliest; None: all.

        Raises:
            TooLongError: Postgres did not finish in time.
            StateError: the database does not respond, or rejected it; as in `Database.fetch`.
        """
        statement, values = select(question, most)
        async with self._asking(seconds) as fetch:
            rows = await fetch(statement, *values)
        return await _groups(question, rows)

    async def report(
        self, question: Question, scope: Question, seconds: float, most: int | None = None
    ) -> tuple[list[UsageGroup], Freshness]:
        """Return the groups that answer a query, and the freshness of the records in its scope.
        Arguments and errors are those of `read`."""
        statement, values = select(question, most)
        latest, of_scope = select_latest(scope)
        async with self._asking(seconds) as fetch:
            ((now, last),) = await fetch(latest, *of_scope)
            rows = await fetch(statement, *values)
        groups = await _groups(question, rows)
        return groups, Freshness(now.timestamp(), None if last is None else last.timestamp())

    @asynccontextmanager
    async def _asking(self, seconds: float) -> AsyncIterator[Any]:
        """Yield a runner of statements on one snapshot of the records, each with a time limit."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            async with asyncio.timeout_at(until):
                await self._turn.acquire()
        except TimeoutError:
            raise TooLongError("other queries used all the time") from None
        try:
            left = max(until - loop.time(), 0.001)
            async with (
                self._database.connection(left + _GRACE_SECONDS) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield _Statement(connection, until)
        finally:
            self._turn.release()


async def _groups(question: Question, rows: Sequence[Any]) -> list[UsageGroup]:
    """Return the groups of rows; many are built on a thread, off the event loop."""

    def convert() -> list[UsageGroup]:
        return [group_of(question, row) for row in yielding(rows)]

    return convert() if len(rows) <= _FEW_ROWS else await asyncio.to_thread(convert)


def yielding(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and let other threads run after every few of them: an event loop that waits for
    the interpreter gets it immediately instead of after 5 ms."""
    for number, item in enumerate(items, 1):
        if number % _FEW_ROWS == 0:
            time.sleep(0)
        yield item


class _Statement:
    """Runs statements on a connection until a deadline of the event loop's clock."""

    def __init__(self, connection: "asyncpg.Connection", until: float) -> None:
        self._connection = connection
        self._until = until

    async def __call__(self, statement: str, *values: object) -> Any:
        left = max(self._until - asyncio.get_running_loop().time(), 0.001)
        await self._connection.execute(f"set local statement_timeout = {math.ceil(left * 1000)}")
        try:
            return await self._connection.fetch(statement, *values, timeout=left + _GRACE_SECONDS)
        except driver().QueryCanceledError:
            raise TooLongError(f"no response within {left:.1f} s") from None
