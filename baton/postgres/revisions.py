"""The revisions of the schema, and the SQL from one to the newest.

alembic writes the SQL and asyncpg runs it: no second driver is needed, and a database is reached by
the same URL and options as everywhere else.
"""

from functools import cache
from io import StringIO
from pathlib import Path

from baton.settings import StartupError

VERSION_TABLE = "baton_schema"
"""Holds the revision of the schema, in one row."""
OLDEST_TABLE = "baton_schema_oldest"
"""Holds the oldest revision whose releases can use the schema, in one row; since 0004."""
BASE = "base"
"""The revision of a database that has no schema."""
USAGE, CONVERSATIONS, BATCHES, WEBHOOKS = "0003", "0004", "0007", "0009"
"""The oldest revisions that have what usage, stored conversations, batches and webhooks need: a
release runs on its own schema and on older ones, with what these have."""
_DIRECTORY = Path(__file__).parent / "migrations"


@cache
def revisions() -> tuple[str, ...]:
    """Return all revisions, oldest first. Needs no alembic: they are taken from file names."""
    names = (path.name for path in (_DIRECTORY / "versions").glob("[0-9]*_*.py"))
    return tuple(sorted(name.partition("_")[0] for name in names))


def newest() -> str:
    """Return the revision that this release needs."""
    return revisions()[-1]


def problem_of(current: str, needs: str = "", allows: str = "") -> str:
    """Return why this release cannot use a schema, and what to do; empty if it can.

    Args:
        current: the revision of the database, BASE if it has none.
        needs: the oldest revision that can be used; empty: the newest one.
        allows: the oldest revision whose releases can use a newer schema; empty: it does not say.
    """
    needs = needs or newest()
    if current in revisions() and current >= needs:
        return ""
    if current not in (BASE, *revisions()) and allows and allows <= newest():
        return ""  # a newer one, which only adds to what this release knows
    if current == BASE:
        return "the database has no Baton schema yet: run `baton db upgrade`"
    if current in revisions():
        return f"schema {current} is too old, {needs} is needed: run `baton db upgrade`"
    return (
        f"schema {current} is unknown to this release, which has {newest()}: run the "
        "release that upgraded the database"
    )


def upgrade_sql(current: str) -> str:
    """Return the SQL from a revision to the newest, without its transaction.

    Args:
        current: the revision of the database, BASE where it has none.

    Raises:
        StartupError: alembic is not installed.
    """
    try:
        from alembic import command
        from alembic.config import Config
    except ImportError as error:
        raise StartupError(
            "Upgrading the schema needs alembic, which is not installed: "
            "pip install 'baton-serving[state]'."
        ) from error
    buffer = StringIO()
    config = Config(output_buffer=buffer)
    # As configparser reads it.
    config.set_main_option("script_location", str(_DIRECTORY).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    begin = "" if current == BASE else f"{current}:"
    command.upgrade(config, f"{begin}{newest()}", sql=True)
    return buffer.getvalue()
