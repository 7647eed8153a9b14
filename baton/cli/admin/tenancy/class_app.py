"""The command `baton classes`, as the command line has it."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from baton.cli.admin.tenancy.app import Json, console
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

_TIMES = {"deadline", "ttft_target", "itl_target", "max_wait"}

classes_app = typer.Typer(
    help="How requests of each priority class wait and share workers.", no_args_is_help=True
)


@dataclass(frozen=True)
class ClassOptions:
    """What is set of a class; 0 takes it back."""

    floor: Annotated[
        float | None, typer.Option(help="Share of the workers that it gets while it waits, 0 to 1.")
    ] = None
    ceiling: Annotated[
        float | None, typer.Option(help="Share of the workers that it gets at most; 0: any.")
    ] = None
    requests_at_once: Annotated[
        int | None, typer.Option(help="Requests that may run at a time; 0: any.")
    ] = None
    weight: Annotated[
        float | None, typer.Option(help="Its requests cost tenants so much less; 0: 1.")
    ] = None
    deadline: Annotated[
        float | None, typer.Option(help="Seconds to the first token, at most; 0: any.")
    ] = None
    ttft_target: Annotated[
        float | None, typer.Option(help="Seconds to the first token to aim at; 0: any.")
    ] = None
    itl_target: Annotated[
        float | None, typer.Option(help="Seconds between tokens to keep; 0: as routers are set.")
    ] = None
    waits: Annotated[
        bool | None, typer.Option("--wait/--refuse", help="What is done that would come too late.")
    ] = None
    max_wait: Annotated[
        float | None,
        typer.Option(help="Seconds after which a request is given up; 0: as routers are set."),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return those that were given, by the names of the record's fields."""
        return {
            f"{name}_seconds" if name in _TIMES else name: value
            for name, value in vars(self).items()
            if value is not None
        }


@classes_app.command("set")
@expand_options
def classes_set(
    options: ChangeOptions,
    policy: ClassOptions,
    name: Annotated[str, typer.Argument(help="batch, interactive or premium.")],
    json: Json = False,
) -> None:
    """Change what holds for a class; in force within a second."""
    from baton.cli.admin.tenancy import class_commands, commands

    target = commands.reach(options, console(), json)
    class_commands.set_class(target, name, policy.given())


@list_command(classes_app)
@expand_options
def classes_ls(options: EtcdOptions, json: Json = False) -> None:
    """List what holds for each class."""
    from baton.cli.admin.tenancy import class_commands, commands

    class_commands.list_classes(commands.reach(options, console(), json))
