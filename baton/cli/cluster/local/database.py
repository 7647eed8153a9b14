"""The Postgres of a local cluster, and the settings with which frontends record usage in it."""

from collections.abc import Mapping
from pathlib import Path

from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.shared.errors import CommandError
from baton.postgres.connecting import driver
from baton.postgres.local.programs import find_programs, make_directory
from baton.postgres.local.server import LocalDatabase
from baton.settings import FrontendSettings, StartupError, load
from baton.settings.names import CONFIG_FLAG

POSTGRES = "postgres"


def own_database(
    config: Path | None,
    auth: str,
    directory: RunDirectory,
    reporter: Reporter,
    *,
    conversations: bool = False,
    batches: bool = False,
    webhooks: bool = False,
) -> tuple[LocalDatabase | None, Mapping[str, str]]:
    """Return the Postgres that a cluster runs, and the settings that frontends get for it.

    It runs one if usage is recorded, authentication is on, responses are stored, or there are files
    or webhooks, and no other database is configured.

    Args:
        config: the settings file.
        auth: of frontends, `off` or `keys`.
        directory: directory of the run, for data and the spool: records are removed with the
            cluster.
        reporter: informed if a database is needed and cannot run.
        conversations: whether responses are stored, besides what the settings say.
        batches: whether there are files and batches, besides what the settings say.
        webhooks: whether there are webhooks, besides what the settings say.

    Raises:
        CommandError: a setting of frontends is invalid, or no database can run for what is to be
            stored.
    """
    arguments = [] if config is None else [f"{CONFIG_FLAG}={config}"]
    try:
        settings = load(FrontendSettings, arguments, "frontend")
    except StartupError as error:
        raise CommandError(str(error)) from error
    stored = conversations or settings.conversations.enabled
    recorded = auth == "keys" or settings.usage.spool_path is not None
    given: dict[str, str] = {}
    if batches and not settings.files.url:
        given["BATON_FILES_URL"] = directory.files.absolute().as_uri()
    needed = stored or batches or bool(settings.files.url) or webhooks or settings.webhooks.enabled
    if settings.state.url.get_secret_value() or not (recorded or needed):
        return None, given
    try:
        driver()
        find_programs()
        make_directory(directory.database)
    except StartupError as error:
        if needed:
            raise CommandError(f"The cluster's database cannot run: {error}") from error
        reporter.warn(f"Usage records are not kept: the cluster has no database. {error}")
        return None, {}
    database = LocalDatabase(directory.database, directory.logs / f"{POSTGRES}.log")
    given["BATON_STATE_URL_FILE"] = str(directory.write_state_url(database.url))
    if recorded and settings.usage.spool_path is None:
        given["BATON_USAGE_SPOOL_PATH"] = str(directory.usage_spool)
    if stored and settings.conversations.spool_path is None:
        given["BATON_CONVERSATIONS_SPOOL_PATH"] = str(directory.conversations_spool)
    return database, given
