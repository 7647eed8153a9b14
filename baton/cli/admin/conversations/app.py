"""The commands `baton conversations …`: `commands` does the work, and is imported then."""

from typing import Annotated

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.admin.output import Json, Limit, Project, Tenant, console
from baton.cli.shared.options import ConfigFile, LocalName

conversations_app = typer.Typer(
    help="List, show and delete stored conversations.", no_args_is_help=True
)

Ident = Annotated[str, typer.Argument(help="The conversation's id.")]


@conversations_app.command("ls")
def ls(
    tenant: Tenant = "default",
    project: Project = "",
    limit: Limit = 20,
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """List a project's conversations, the newest first."""
    from baton.cli.admin.conversations import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    commands.list_conversations(database, tenant, project, limit, console(), as_json=json)


@conversations_app.command("show")
def show(
    conversation: Ident,
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
    json: Json = False,
) -> None:
    """Print a conversation with its items."""
    from baton.cli.admin.conversations import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    commands.show_conversation(database, tenant, project, conversation, console(), as_json=json)


@conversations_app.command("rm")
def rm(
    conversation: Ident,
    tenant: Tenant = "default",
    project: Project = "",
    state_url: StateUrl = "",
    config: ConfigFile = None,
    cluster: LocalName = "",
) -> None:
    """Delete a conversation with its items and responses."""
    from baton.cli.admin.conversations import commands
    from baton.cli.admin.db.commands import settings_of

    database = settings_of(state_url, config, cluster)
    commands.delete_conversation(database, tenant, project, conversation)
    typer.echo(f"Deleted {conversation}.")
