"""Sources of records: Postgres, or files."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from baton.cli.admin.db.commands import at
from baton.cli.admin.usage.options import UsageOptions
from baton.cli.cluster.local.files.local_clusters import local_record
from baton.cli.shared.cluster_address import ClusterAddress
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.settings import (
    FrontendSettings,
    StartupError,
    StateSettings,
    UsageSettings,
    load_with_sources,
)
from baton.settings.names import CONFIG_FLAG
from baton.usage.report.files import RecordFiles, files_of
from baton.usage.report.question import Question, UsageGroup

_SAY = (
    "Name the source of usage records: --state-url (BATON_STATE_URL) for Postgres; --path or "
    "usage.jsonl_path (BATON_USAGE_JSONL_PATH) for files."
)
_SECONDS = 300.0
"""Time limit of a query in Postgres."""


@dataclass(frozen=True)
class UsageReport:
    """The groups that answer a query."""

    groups: Sequence[UsageGroup]
    doubles: int = 0
    """Duplicate records that were skipped, in files."""
    damaged: int = 0
    """Invalid lines that were skipped, in files."""


class UsageSource:
    """Answers queries from the records that options and settings name.

    Args:
        options: options of the command: a path wins over a URL, both over settings, and those over
            the database of the selected cluster, if `baton up` runs it on this machine.

    Raises:
        CommandError: none are named, or a setting is wrong.
    """

    cluster: ClusterAddress | None
    """Cluster of the records; None: the operator named only the records."""

    def __init__(self, options: UsageOptions) -> None:
        settings = _settings(options)
        self.usage: UsageSettings = settings.usage
        self._state: StateSettings | None = None
        self._path: Path | None = options.path
        if options.path is None:
            if options.state_url:
                self._state = at(options.state_url)
            elif settings.state.url.get_secret_value():
                self._state = settings.state
            elif settings.usage.jsonl_path is not None:
                self._path = settings.usage.jsonl_path
        if self._state is None and self._path is None:
            self.cluster = _cluster(options)
            self._state = at(_state_url(self.cluster))
        else:
            named = options.etcd_endpoint or options.cluster
            self.cluster = options.resolve() if named else None

    def answer(self, question: Question) -> UsageReport:
        """Return the answer to a query.

        Raises:
            CommandError: the records cannot be read.
        """
        if self._state is not None:
            return _from_postgres(self._state, question)
        assert self._path is not None
        return _from_files(self._path, question)


def _cluster(options: UsageOptions) -> ClusterAddress:
    try:
        return options.resolve()
    except CommandError as error:
        raise CommandError(f"{error}\n{_SAY}", error.code) from error


def _state_url(cluster: ClusterAddress) -> str:
    """Return the URL of a cluster's own Postgres.

    Raises:
        CommandError: it runs none on this machine.
    """
    local = cluster.local or local_record(cluster.endpoints, cluster.name)
    if local is None:
        raise CommandError(f"Cluster {cluster.name!r} does not run on this machine. {_SAY}")
    if not local.state_url:
        raise CommandError(
            f"Cluster {cluster.name!r} keeps no usage records: `baton up --auth keys` starts "
            f"one with a Postgres that keeps them. {_SAY}"
        )
    return local.state_url


def _settings(options: UsageOptions) -> FrontendSettings:
    arguments = [] if options.config is None else [f"{CONFIG_FLAG}={options.config}"]
    try:
        return load_with_sources(FrontendSettings, arguments, "frontend").settings
    except StartupError as error:
        raise CommandError(str(error)) from error


def _from_files(path: Path, question: Question) -> UsageReport:
    found = RecordFiles(files_of(path), question)
    try:
        groups = question.answer(found)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    return UsageReport(groups, found.doubles, found.damaged)


def _from_postgres(settings: StateSettings, question: Question) -> UsageReport:
    # asyncpg is imported only when it is used.
    from baton.postgres.connecting import StateError
    from baton.usage.report.table import TooLongError

    try:
        return UsageReport(asyncio.run(_read(settings, question)))
    except StartupError as error:
        raise CommandError(str(error)) from error
    except StateError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    except TooLongError as error:
        raise CommandError(f"Postgres: {error}; select fewer days.", EXIT_FAILED) from error


async def _read(settings: StateSettings, question: Question) -> list[UsageGroup]:
    from baton.postgres import schema
    from baton.postgres.connecting import place
    from baton.postgres.database import Database
    from baton.postgres.revisions import USAGE
    from baton.usage.report.table import UsageTable

    problem = await schema.problem(settings, USAGE)  # says at once that it cannot be reached
    if problem:
        raise CommandError(f"{place(settings)}: {problem}.", EXIT_FAILED)
    async with Database(settings) as database:
        await database.wait_available(settings.connect_seconds)
        return await UsageTable(database).read(question, _SECONDS)
