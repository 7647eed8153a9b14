"""The command `baton auto`, as the command line has it."""

from pathlib import Path
from typing import Annotated

import typer

from baton.cli.admin.output import Json, console
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

auto_app = typer.Typer(
    help="Manage the rules of the model auto.",
    no_args_is_help=True,
)


@auto_app.command("set")
@expand_options
def auto_set(
    options: ChangeOptions,
    file: Annotated[
        Path,
        typer.Argument(help="The rules, in TOML or JSON.", exists=True, dir_okay=False),
    ],
    allow_missing: Annotated[
        bool, typer.Option(help="Accept models that the cluster does not have yet.")
    ] = False,
    json: Json = False,
) -> None:
    """Replace all rules, within a second."""
    from baton.cli.admin.auto import commands
    from baton.cli.admin.target import reach

    commands.set_rules(reach(options, console(), json), file, allow_missing)


@auto_app.command("rm")
@expand_options
def auto_rm(options: ChangeOptions, json: Json = False) -> None:
    """Remove all rules: requests for auto are rejected from then on."""
    from baton.cli.admin.auto import commands
    from baton.cli.admin.target import reach

    commands.remove_rules(reach(options, console(), json))


@list_command(auto_app)
@expand_options
def auto_ls(options: EtcdOptions, json: Json = False) -> None:
    """List the rules, in the order in which they are asked."""
    from baton.cli.admin.auto import commands
    from baton.cli.admin.target import reach

    commands.list_rules(reach(options, console(), json))
