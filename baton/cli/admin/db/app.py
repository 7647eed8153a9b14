"""The commands `baton db …`: `baton.cli.admin.db.commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.shared.options import ConfigFile, LocalName

db_app = typer.Typer(help="The database's schema, and what is old in it.", no_args_is_help=True)

StateUrl = Annotated[
    str,
    typer.Option(
        "--state-url",
        help="postgresql://user@host/database. Default: state.url of frontends.",
        envvar="BATON_STATE_URL",
        show_envvar=True,
    ),
]


Optional = Annotated[
    bool,
    typer.Option(
        "--optional",
        help="End with 0 if it cannot be done within a minute, and say why.",
    ),
]


@db_app.command("upgrade")
def upgrade(
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    optional: Optional = False,
) -> None:
    """Bring the database's schema to what this release needs."""
    from baton.cli.admin.db import commands

    typer.echo(commands.upgrade(state_url, config, cluster, optional=optional))


@db_app.command("status")
def status(state_url: StateUrl = "", config: ConfigFile = None, cluster: LocalName = "") -> None:
    """Show which schema the database has.

    The exit code is 1 if it is not what this release needs.
    """
    from baton.cli.admin.db import commands

    typer.echo(commands.status(state_url, config, cluster))


@db_app.command("prune")
def prune(
    before: Annotated[str, typer.Option(help="A day (UTC), as 2026-11-23.")],
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
) -> None:
    """Delete the usage records of requests before a day."""
    from baton.cli.admin.db import commands

    typer.echo(commands.prune(before, state_url, config, cluster))
