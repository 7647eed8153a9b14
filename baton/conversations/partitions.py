"""The months of items, responses and completions: made ahead, and dropped when they are old.

Postgres refuses a row without its month, so months are made before they begin. All processes may do
this: a lock makes each month once.
"""

from collections.abc import Awaitable, Callable
from datetime import date
from typing import TYPE_CHECKING, TypeVar

from baton.conversations.compactions import statements as compactions
from baton.postgres.connecting import NoPartitionError
from baton.postgres.uuid7 import first_id

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")

TABLES = ("items", "responses", "completions", "response_events")
MONTHS_AHEAD = 3
SECONDS = 60.0
"""Time for a statement, which is not one of a request."""
_PATIENCE = "set local lock_timeout = '1s'"
"""Statements on a table wait behind one that makes or drops a month of it. While a long one, such
as a backup's, reads the table, the month has to wait."""
_HASHES = 8
"""Partitions of a month, by tenant."""
_LOCK = 0x6261746F6E6D  # `batonm`
"""Key of pg_advisory_xact_lock."""
_AT_ONCE = 10_000
"""Rows of one statement: a transaction short enough to block no others."""
_DELETE_OLD = f"""
delete from conversations where (tenant, id) in (
    select tenant, id from conversations where last_item < $1 limit {_AT_ONCE}
)
"""
"""Conversations whose items are all dropped."""
_FORGET_MONTHS = "delete from tenant_storage where month > 0 and month < $1"
"""What tenants had stored in months that are dropped."""
_EXISTING = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = $1::text::regclass
"""


async def with_months(
    write: Callable[[], Awaitable[T]], make: Callable[[], Awaitable[object]]
) -> T:
    """Run what inserts rows; if a month is missing, make the months and run it again.

    Args:
        write: inserts, or fails as a whole.
        make: makes the months.
    """
    try:
        return await write()
    except NoPartitionError:
        await make()
        return await write()


def month_after(month: date, count: int = 1) -> date:
    """Return the first day of the month that is `count` after that of a day."""
    months = month.year * 12 + month.month - 1 + count
    return date(months // 12, months % 12 + 1, 1)


async def maintain(
    connection: "asyncpg.Connection", today: date, oldest: date | None = None
) -> tuple[int, int]:
    """Make the months from last month to MONTHS_AHEAD, and drop old ones.

    Args:
        connection: without a transaction.
        today: in UTC.
        oldest: months that ended before this day are dropped; None: none.

    Returns:
        The number of partitions of tables that were made, and of those that were dropped.

    Raises:
        asyncpg.PostgresError: a long statement reads a table, among others. What was made and
            dropped before stands.
    """
    wanted = [month_after(today, count) for count in range(-1, MONTHS_AHEAD + 1)]
    if oldest is not None:
        wanted = [month for month in wanted if month_after(month) > oldest]
    made = dropped = 0
    for table in TABLES:
        if not await connection.fetchval("select to_regclass($1) is not null", table):
            continue  # the schema is older than this release
        async with connection.transaction():
            await connection.execute(f"select pg_advisory_xact_lock({_LOCK})", timeout=SECONDS)
            await connection.execute(_PATIENCE)
            existing = {row["relname"] for row in await connection.fetch(_EXISTING, table)}
            for month in wanted:
                if partition_name(table, month) not in existing:
                    await connection.execute(_create(table, month), timeout=SECONDS)
                    made += 1
        if oldest is not None:
            for name in sorted(existing):
                if name < partition_name(table, oldest):
                    async with connection.transaction():  # by itself, for a short lock
                        await connection.execute(_PATIENCE)
                        drop = f'drop table if exists "{name}"'
                        await connection.execute(drop, timeout=SECONDS)
                    dropped += 1
    if oldest is not None:
        bound = first_id(oldest.replace(day=1))
        while await connection.execute(_DELETE_OLD, bound, timeout=SECONDS) != "DELETE 0":
            pass
        if await connection.fetchval(compactions.EXISTS):
            await connection.execute(compactions.DELETE_OLD, bound, timeout=SECONDS)
        if await connection.fetchval("select to_regclass('tenant_storage') is not null"):
            first = oldest.year * 100 + oldest.month  # after deletions, which count in these months
            await connection.execute(_FORGET_MONTHS, first, timeout=SECONDS)
    return made, dropped


def partition_name(table: str, day: date) -> str:
    """Return the name of the partition that has the rows of a day's month."""
    return f"{table}_{day:%Y%m}"


def _create(table: str, month: date) -> str:
    name = partition_name(table, month)
    low, high = first_id(month), first_id(month_after(month))
    hashes = "".join(
        f"create table {name}_{part} partition of {name} "
        f"for values with (modulus {_HASHES}, remainder {part});"
        for part in range(_HASHES)
    )
    return (
        f"create table {name} partition of {table} for values from ('{low}') to ('{high}') "
        f"partition by hash (tenant); {hashes}"
    )
