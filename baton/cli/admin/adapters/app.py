"""The command `baton adapters`, as the command line has it."""

from typing import Annotated

import typer

from baton.cli.admin.output import Json, console
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

adapters_app = typer.Typer(
    help="Manage LoRA adapters, which workers load while they serve.", no_args_is_help=True
)
AdapterName = Annotated[str, typer.Argument(help="The adapter's name in requests.")]


@adapters_app.command("add")
@expand_options
def adapters_add(
    options: ChangeOptions,
    name: AdapterName,
    location: Annotated[
        str,
        typer.Argument(
            help="Directory as PEFT writes it, at the same path here and on all workers of the "
            "model, or a URL: s3://, https:// or hf://."
        ),
    ],
    base: Annotated[str, typer.Option(help="Model that it is an adapter of.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the adapter of this name.")
    ] = False,
    json: Json = False,
) -> None:
    """Register an adapter: workers of its model serve it within seconds."""
    from baton.cli.admin.adapters import commands
    from baton.cli.admin.target import reach

    target = reach(options, console(), json)
    commands.add_adapter(target, name, base, location, replace=replace)


@adapters_app.command("remove")
@expand_options
def adapters_remove(options: ChangeOptions, name: AdapterName, json: Json = False) -> None:
    """Remove an adapter: new requests for it are rejected; others end."""
    from baton.cli.admin.adapters import commands
    from baton.cli.admin.target import reach

    commands.remove_adapter(reach(options, console(), json), name)


@list_command(adapters_app)
@expand_options
def adapters_ls(options: EtcdOptions, json: Json = False) -> None:
    """List adapters, and how many workers have verified them."""
    from baton.cli.admin.adapters import commands
    from baton.cli.admin.target import reach

    commands.list_adapters(reach(options, console(), json))
