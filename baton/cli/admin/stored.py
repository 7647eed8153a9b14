"""Runs what commands do with a project's rows in Postgres."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from baton.cli.shared.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from baton.errors import BatonError, Reason
from baton.postgres.connecting import StateError
from baton.postgres.database import Database
from baton.settings import StateSettings
from baton.telemetry import logs

R = TypeVar("R")
_USAGE = frozenset({Reason.NOT_FOUND, Reason.FAILED_PRECONDITION})
"""What another id, or another moment, would change."""


def run_stored(
    settings: StateSettings, name: str, needs: str, what: Callable[[Database], Awaitable[R]]
) -> R:
    """Connect to the database and return what a coroutine function returns for it.

    Args:
        settings: of the database.
        name: of what the rows are, such as `batches`.
        needs: the oldest revision of the schema that has them.
        what: is called with the database.

    Raises:
        CommandError: the database is away, or `what` failed.
    """

    async def run() -> R:
        async with Database(settings, name, needs) as database:
            await database.wait_available(settings.connect_seconds)
            return await what(database)

    logs.configure(name, name, level="error")
    try:
        return asyncio.run(run())
    except StateError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    except BatonError as error:
        code = EXIT_USAGE if error.reason in _USAGE else EXIT_FAILED
        raise CommandError(f"{error}.", code) from error


def time_text(moment: datetime) -> str:
    """Return a moment for a table, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
