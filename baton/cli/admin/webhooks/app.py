"""The commands `baton webhooks …`: `commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.admin.output import Json, Limit, Project, Tenant, console
from baton.cli.shared.options import ConfigFile, LocalName

webhooks_app = typer.Typer(
    help="Show webhook endpoints and deliveries to them.", no_args_is_help=True
)


@webhooks_app.command("ls")
def ls(
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """List a project's endpoints, and how many events wait for each."""
    from baton.cli.admin.db.commands import settings_of
    from baton.cli.admin.webhooks import commands

    database = settings_of(state_url, config, cluster)
    commands.list_endpoints(database, tenant, project, console(), as_json=json)


@webhooks_app.command("deliveries")
def deliveries(
    tenant: Tenant = "default",
    project: Project = "",
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="Only attempts at this endpoint.")
    ] = "",
    event: Annotated[str, typer.Option("--event", help="Only attempts of this event.")] = "",
    limit: Limit = 20,
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """List attempts to deliver events, the latest first."""
    from baton.cli.admin.db.commands import settings_of
    from baton.cli.admin.webhooks import commands

    database = settings_of(state_url, config, cluster)
    only = commands.AttemptFilter(endpoint, event, limit)
    commands.list_attempts(database, tenant, project, only, console(), as_json=json)


@webhooks_app.command("rm")
def rm(
    endpoint: Annotated[str, typer.Argument(help="The endpoint's id.")],
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
) -> None:
    """Delete an endpoint, and what it has not received yet."""
    from baton.cli.admin.db.commands import settings_of
    from baton.cli.admin.webhooks import commands

    database = settings_of(state_url, config, cluster)
    commands.delete_endpoint(database, tenant, project, endpoint)
    typer.echo(f"Deleted {endpoint}.")
