"""Statements on the partitions of one month, by their names.

A table has a partition per month and hash of tenants. Postgres plans a statement on the table anew
each time, which takes it longer than running it: a plan that is kept locks all partitions. A plan
for a month is small enough to be kept.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from baton.conversations.ids import milliseconds_of
from baton.conversations.partitions import month_after, partition_name
from baton.conversations.statements import counting
from baton.postgres.connecting import MissingTableError
from baton.postgres.database import Database
from baton.postgres.uuid7 import day_of, first_id

if TYPE_CHECKING:
    import asyncpg

KEEP_PLANS = "set plan_cache_mode = force_generic_plan"
"""Runs on each connection of the store; otherwise Postgres plans for the values of each execution,
as it does not count the time to plan a statement."""
_DAY_MS = 24 * 3600 * 1000
_STATEMENTS = 1024
_TABLE = re.compile(r"\b(from|insert into) (items|responses)\b")


async def fetch_between(
    database: Database, statement: str, first: UUID, last: UUID, *values: object
) -> "list[asyncpg.Record]":
    """Return the rows of a statement that reads rows of partitioned tables between two ids.

    Args:
        database: with the tables.
        statement: reads `from` each table once.
        first: the lower bound of ids.
        last: the upper bound.
        values: of the statement.

    Raises:
        StateError: as `Database.fetch`.
    """
    if (of_month := read_statement(statement, first, last)) is not None:
        try:
            return await database.fetch(of_month, *values)
        except MissingTableError:
            pass  # No such month, or one that is being dropped: the table has what there is.
    return await database.fetch(statement, *values)


async def write_turn(
    database: Database, statement: str, ident: UUID, *values: object
) -> "list[asyncpg.Record]":
    """Run the statement of a turn, which counts what it stores.

    Triggers that count take as long as all else in it. They are those of the tables: rows that are
    inserted into the partitions of a month by its name do not fire them.

    Args:
        database: with the tables.
        statement: of those in `statements`.
        ident: of the response.
        values: of the statement.

    Raises:
        StateError: as `Database.fetch`.
    """
    if (of_month := turn_statement(statement, ident)) is not None:
        try:
            return await database.fetch(of_month, *values)
        except MissingTableError:
            pass  # No such month, or a schema that does not count: triggers do what it does.
    return await database.fetch(statement, *values)


def read_statement(statement: str, first: UUID, last: UUID) -> str | None:
    """Return a statement that reads between two ids, for their month; None: there is none."""
    return _in_month(statement, milliseconds_of(first) // _DAY_MS, milliseconds_of(last) // _DAY_MS)


def turn_statement(statement: str, ident: UUID) -> str | None:
    """Return the statement of a turn, for its month; None: it is beyond the calendar."""
    return _counting(statement, milliseconds_of(ident) // _DAY_MS)


def month_bounds(ident: UUID) -> tuple[UUID, UUID]:
    """Return the first and the last id of an id's month; itself, if that is beyond the calendar."""
    return _bounds(milliseconds_of(ident) // _DAY_MS) or (ident, ident)


@lru_cache(_STATEMENTS)
def _bounds(day: int) -> tuple[UUID, UUID] | None:
    if (found := day_of(day)) is None:
        return None
    following = month_after(found)
    return first_id(found.replace(day=1)), UUID(int=first_id(following).int - 1)


@lru_cache(_STATEMENTS)
def _in_month(statement: str, *days: int) -> str | None:
    """Return the statement for the month of all days since the Unix epoch; None: there is none."""
    months = {(found.year, found.month): found for day in days if (found := day_of(day))}
    if len(months) != 1:
        return None
    (month,) = months.values()
    return _TABLE.sub(lambda found: f"{found[1]} {partition_name(found[2], month)}", statement)


@lru_cache(_STATEMENTS)
def _counting(statement: str, day: int) -> str | None:
    found = day_of(day)
    if found is None:
        return None
    return _in_month(counting(statement, found.year * 100 + found.month), day)
