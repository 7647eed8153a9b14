"""The commands `baton batches …`: `commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.admin.output import Json, Limit, Project, Tenant, console
from baton.cli.shared.options import ConfigFile, LocalName

batches_app = typer.Typer(help="List, show and cancel batches.", no_args_is_help=True)

Ident = Annotated[str, typer.Argument(help="The batch's id.")]


@batches_app.command("ls")
def ls(
    tenant: Tenant = "default",
    project: Project = "",
    limit: Limit = 20,
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """List a project's batches, the newest first."""
    from baton.cli.admin.batches import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    commands.list_batches(database, tenant, project, limit, console(), as_json=json)


@batches_app.command("show")
def show(
    batch: Ident,
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """Print a batch: state, lines, tokens, errors."""
    from baton.cli.admin.batches import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    commands.show_batch(database, tenant, project, batch, console(), as_json=json)


@batches_app.command("cancel")
def cancel(
    batch: Ident,
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
) -> None:
    """Cancel a batch; what ran is in its output."""
    from baton.cli.admin.batches import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    status = commands.cancel_batch(database, tenant, project, batch)
    typer.echo(f"{batch} is {status}.")
