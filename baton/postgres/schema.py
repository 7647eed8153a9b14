"""The schema of a database: its current revision, and the upgrade."""

from typing import TYPE_CHECKING, NamedTuple

from baton.postgres.connecting import StateError, connected, driver, place
from baton.postgres.revisions import (
    BASE,
    OLDEST_TABLE,
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


async def read_problem(connection: "asyncpg.Connection", needs: str = "") -> str:
    """Return why this release cannot use the schema of a database; empty if it can.

    Args:
        connection: to the database.
        needs: the oldest revision that can be used; empty: the newest one.
    """
    revision, allows = await read_revision(connection), ""
    if revision not in (BASE, *revisions()) and await connection.fetchval(
        "select to_regclass($1) is not null", OLDEST_TABLE
    ):
        allows = await connection.fetchval(f"select revision from {OLDEST_TABLE}") or ""
    return problem_of(revision, needs, allows)


async def current(settings: StateSettings) -> str:
    """Return the revision of the database; BASE if it has no schema.

    Raises:
        StartupError: asyncpg is not installed.
        StateError: the database does not respond, or rejects the statement.
    """
    async with connected(settings) as connection:
        return await read_revision(connection)


async def problem(settings: StateSettings, needs: str = "") -> str:
    """Return why this release cannot use the schema of the database, as `read_problem`; errors are
    those of `current`."""
    async with connected(settings) as connection:
        return await read_problem(connection, needs)


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
            if reason := await read_problem(connection):
                raise StateError(f"{place(settings)}: {reason}")
            return Upgrade(before, before)
        try:
            await connection.execute(upgrade_sql(before), timeout=seconds)
        except asyncpg.DuplicateTableError as error:
            raise StateError(
                f"{place(settings)}: {error}, which is not from a Baton schema: use a "
                "separate database"
            ) from None
        return Upgrade(before, newest())
