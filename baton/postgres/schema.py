"""The schema of a database: its current revision, and the upgrade."""

from typing import TYPE_CHECKING, NamedTuple

from baton.postgres.connecting import StateError, connected, driver, place
from baton.postgres.revisions import (
    BASE,
    VERSION_TABLE,
    newest,
    problem_of,
    revisions,
    upgrade_sql,
)
from baton.settings import StateSettings

if TYPE_CHECKING:
    import asyncpg

UPGRADE_SECONDS = 3600.0
"""Time for a whole upgrade, including waiting for another one."""
_LOCK = 0x6261746F6E  # `baton`
"""Key of pg_advisory_xact_lock: one upgrade of a database at a time."""


class Upgrade(NamedTuple):
    """The result of an upgrade."""

    before: str
    after: str


async def read_revision(connection: "asyncpg.Connection") -> str:
    """Return the revision of a database; BASE if it has no schema."""
    if not await connection.fetchval("select to_regclass($1) is not null", VERSION_TABLE):
        return BASE
    return await connection.fetchval(f"select version_num from {VERSION_TABLE}") or BASE


async def current(settings: StateSettings) -> str:
    """Return the revision of the database; BASE if it has no schema.

    Raises:
        StartupError: asyncpg is not installed.
        StateError: the database does not respond, or rejects the statement.
    """
    async with connected(settings) as connection:
        return await read_revision(connection)


async def upgrade(settings: StateSettings, seconds: float = UPGRADE_SECONDS) -> Upgrade:
    """Upgrade the schema to the newest revision, atomically. Concurrent upgrades wait.

    Raises:
        StartupError: asyncpg or alembic is not installed.
        StateError: the database does not respond, rejects a statement, or has a newer schema.
    """
    asyncpg = driver()
    async with connected(settings) as connection, connection.transaction():
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK})", timeout=seconds)
        before = await read_revision(connection)
        if before == newest():
            return Upgrade(before, before)
        if before not in (BASE, *revisions()):
            raise StateError(f"{place(settings)}: {problem_of(before)}")
        try:
            await connection.execute(upgrade_sql(before), timeout=seconds)
        except asyncpg.DuplicateTableError as error:
            raise StateError(
                f"{place(settings)}: {error}, which is not from a Baton schema: use a "
                "separate database"
            ) from None
        return Upgrade(before, newest())
