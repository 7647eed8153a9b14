"""The commands `baton db …`: `baton.cli.admin.db.commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.shared.options import ConfigFile, LocalName

db_app = typer.Typer(
    help="Manage the database: schema and old usage records.", no_args_is_help=True
)

StateUrl = Annotated[
    str,
    typer.Option(
        "--state-url",
        help="postgresql://user@host/database. Default: the frontends' state.url.",
        envvar="BATON_STATE_URL",
        show_envvar=True,
    ),
]


Optional = Annotated[
    bool,
    typer.Option(
        "--optional",
        help="If the upgrade cannot finish within a minute, print the reason and exit with 0.",
    ),
]


@db_app.command("upgrade")
def upgrade(
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    optional: Optional = False,
) -> None:
    """Upgrade the database's schema to the one that this release needs."""
    from baton.cli.admin.db import commands

    typer.echo(commands.upgrade(state_url, config, cluster, optional=optional))


@db_app.command("status")
def status(state_url: StateUrl = "", config: ConfigFile = None, cluster: LocalName = "") -> None:
    """Show the database's schema.

    The exit code is 1 if this release needs another schema.
    """
    from baton.cli.admin.db import commands

    typer.echo(commands.status(state_url, config, cluster))


@db_app.command("prune")
def prune(
    before: Annotated[str, typer.Option(help="Day in UTC, for example 2026-11-23.")],
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
) -> None:
    """Delete the usage records of all days before a day."""
    from baton.cli.admin.db import commands

    typer.echo(commands.prune(before, state_url, config, cluster))
