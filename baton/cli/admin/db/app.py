"""The commands `baton db …`: `baton.cli.admin.db.commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.shared.options import ConfigFile, EtcdOptions, LocalName, expand_options

db_app = typer.Typer(
    help="Manage the database: schema, old usage records, tenants.", no_args_is_help=True
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


@db_app.command("forget")
@expand_options
def forget(
    options: EtcdOptions,
    tenant: Annotated[str, typer.Argument(help="The tenant's id.")],
    state_url: StateUrl = "",
    config: ConfigFile = None,
    keep_usage: Annotated[
        bool, typer.Option("--keep-usage", help="Do not delete usage records.")
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite",
            help="Write the tables anew, so that no deleted byte stays in files. Requests that "
            "need a table wait meanwhile.",
        ),
    ] = False,
) -> None:
    """Delete all rows of a tenant, and replace its KV's salt.

    Revoke the tenant's keys first: requests that run meanwhile are stored.
    """
    from baton.cli.admin.db import commands

    lines = commands.forget(
        tenant, state_url, config, options, keep_usage=keep_usage, rewrite=rewrite
    )
    for line in lines:
        typer.echo(line)
