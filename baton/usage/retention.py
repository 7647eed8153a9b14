"""Deletes old usage records from Postgres."""

from datetime import date

from baton.postgres.connecting import connected
from baton.postgres.uuid7 import first_id
from baton.settings import StateSettings

_AT_ONCE = 10_000
"""Rows of one statement: a transaction short enough to block no others."""
_DELETE = (
    "delete from usage_records where id in "
    f"(select id from usage_records where id < $1 order by id limit {_AT_ONCE})"
)


async def delete_before(settings: StateSettings, day: date) -> int:
    """Delete the records of requests that began before a day (UTC), and return their number.

    The oldest are deleted first, in separate transactions: after a failure, completed ones stand.

    Raises:
        StartupError: asyncpg is not installed.
        StateError: the database does not respond, or rejects the statement.
    """
    deleted, bound = 0, first_id(day)
    async with connected(settings) as connection:
        while True:
            _, _, count = (await connection.execute(_DELETE, bound)).rpartition(" ")
            if not int(count):
                return deleted
            deleted += int(count)
