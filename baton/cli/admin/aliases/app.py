"""The command `baton aliases`, as the command line has it."""

from typing import Annotated

import typer

from baton.cli.admin.output import Json, console
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

aliases_app = typer.Typer(help="Manage aliases: further names of models.", no_args_is_help=True)
AliasName = Annotated[str, typer.Argument(help="The alias: a name in requests.")]


@aliases_app.command("set")
@expand_options
def aliases_set(
    options: ChangeOptions,
    name: AliasName,
    models: Annotated[
        list[str],
        typer.Argument(
            help="Model or adapter that it means. Of several, each gets a part of the "
            "conversations: MODEL=WEIGHT."
        ),
    ],
    allow_missing: Annotated[
        bool, typer.Option(help="Accept models that the cluster does not have yet.")
    ] = False,
    json: Json = False,
) -> None:
    """Create an alias, or point it at other models, within a second."""
    from baton.cli.admin.aliases import commands
    from baton.cli.admin.target import reach

    target = reach(options, console(), json)
    commands.set_alias(target, name, models, allow_missing)


@aliases_app.command("rm")
@expand_options
def aliases_rm(options: ChangeOptions, name: AliasName, json: Json = False) -> None:
    """Remove an alias: requests for it are rejected from then on."""
    from baton.cli.admin.aliases import commands
    from baton.cli.admin.target import reach

    commands.remove_alias(reach(options, console(), json), name)


@list_command(aliases_app)
@expand_options
def aliases_ls(options: EtcdOptions, json: Json = False) -> None:
    """List aliases and what they mean."""
    from baton.cli.admin.aliases import commands
    from baton.cli.admin.target import reach

    commands.list_aliases(reach(options, console(), json))
