"""The command `baton policies`, as the command line has it."""

from typing import Annotated

import typer

from baton.cli.admin.output import Json, console
from baton.cli.admin.policies.options import PolicyOptions
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

policies_app = typer.Typer(
    help="Manage policies of models: access and fallbacks.",
    no_args_is_help=True,
)
PolicyModel = Annotated[str, typer.Argument(help="The model or adapter.")]


@policies_app.command("set")
@expand_options
def policies_set(
    target: ChangeOptions, model: PolicyModel, policy: PolicyOptions, json: Json = False
) -> None:
    """Create the policy of a model, or replace all of it, within a second."""
    from baton.cli.admin.policies import commands
    from baton.cli.admin.target import reach

    commands.set_policy(reach(target, console(), json), model, policy)


@policies_app.command("rm")
@expand_options
def policies_rm(options: ChangeOptions, model: PolicyModel, json: Json = False) -> None:
    """Remove the policy of a model."""
    from baton.cli.admin.policies import commands
    from baton.cli.admin.target import reach

    commands.remove_policy(reach(options, console(), json), model)


@list_command(policies_app)
@expand_options
def policies_ls(options: EtcdOptions, json: Json = False) -> None:
    """List the policies of models."""
    from baton.cli.admin.policies import commands
    from baton.cli.admin.target import reach

    commands.list_policies(reach(options, console(), json))
