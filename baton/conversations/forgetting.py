"""Deletes all rows of a tenant."""

from collections.abc import Collection

from baton.postgres.connecting import connected
from baton.settings import StateSettings

SECONDS = 3600.0
"""Time for the rows of one table."""
_TABLES = """
select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
where a.attname = 'tenant' and not a.attisdropped and not c.relispartition
    and c.relkind in ('r', 'p') and c.relnamespace = current_schema()::regnamespace
order by c.relname
"""
"""Every table that has rows of tenants, also of later releases."""


async def forget_tenant(
    settings: StateSettings, tenant: str, *, keep: Collection[str] = (), rewrite: bool = False
) -> dict[str, int]:
    """Delete a tenant's rows, and return their number by table.

    Each table is a transaction: after a failure, run it again.

    Args:
        settings: of the database.
        tenant: its id.
        keep: tables that are left as they are.
        rewrite: write the tables anew, so that no deleted byte stays in their files. Statements on
            a table wait meanwhile.

    Raises:
        StartupError: asyncpg is not installed.
        StateError: the database does not respond, or rejects a statement.
    """
    deleted: dict[str, int] = {}
    async with connected(settings) as connection:
        for row in await connection.fetch(_TABLES):
            table = row["relname"]
            if table in keep:
                continue
            done = await connection.execute(
                f'delete from "{table}" where tenant = $1', tenant, timeout=SECONDS
            )
            deleted[table] = int(done.rpartition(" ")[2])
            full = "(full)" if rewrite else ""
            await connection.execute(f'vacuum {full} "{table}"', timeout=SECONDS)
    return deleted
