"""Reads of one month, from its partition by name.

A table has a partition per month and hash of tenants. Postgres plans a statement on the table anew
each time, which takes it longer than running it: a plan that is kept locks all partitions. A plan
for a month is small enough to be kept.
"""

from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from baton.conversations.ids import milliseconds_of
from baton.conversations.partitions import partition_name
from baton.postgres.connecting import MissingTableError
from baton.postgres.database import Database
from baton.postgres.uuid7 import day_of

if TYPE_CHECKING:
    import asyncpg

KEEP_PLANS = "set plan_cache_mode = force_generic_plan"
"""Runs on each connection of the store; otherwise Postgres plans for the values of each execution,
as it does not count the time to plan a statement."""
_DAY_MS = 24 * 3600 * 1000
_STATEMENTS = 1024


async def fetch_between(
    database: Database, statement: str, table: str, first: UUID, last: UUID, *values: object
) -> "list[asyncpg.Record]":
    """Return the rows of a statement that reads rows of a table between two ids.

    Args:
        database: with the table.
        statement: reads `from` the table, once.
        table: its name.
        first: the lower bound of ids.
        last: the upper bound.
        values: of the statement.

    Raises:
        StateError: as `Database.fetch`.
    """
    days = milliseconds_of(first) // _DAY_MS, milliseconds_of(last) // _DAY_MS
    if (of_month := _of_month(statement, table, *days)) is not None:
        try:
            return await database.fetch(of_month, *values)
        except MissingTableError:
            pass  # No such month, or one that is being dropped: the table has what there is.
    return await database.fetch(statement, *values)


@lru_cache(_STATEMENTS)
def _of_month(statement: str, table: str, *days: int) -> str | None:
    """Return the statement for the month of all days since the Unix epoch; None: there is none."""
    names = {partition_name(table, found) for day in days if (found := day_of(day)) is not None}
    if len(names) != 1:
        return None
    return statement.replace(f"from {table}", f"from {names.pop()}", 1)
