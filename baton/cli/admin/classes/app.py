"""The command `baton classes`, as the command line has it."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from baton.cli.admin.output import Json, console
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

_TIMES = {"deadline", "ttft_target", "itl_target", "max_wait"}

classes_app = typer.Typer(
    help="Manage priority classes: queueing and workers' shares.", no_args_is_help=True
)


@dataclass(frozen=True)
class ClassOptions:
    """What is set of a class; 0 takes it back."""

    floor: Annotated[
        float | None,
        typer.Option(
            help="Guaranteed share of the workers while requests of the class are queued, 0 to 1."
        ),
    ] = None
    ceiling: Annotated[
        float | None, typer.Option(help="Largest share of the workers, 0 to 1. 0: no ceiling.")
    ] = None
    requests_at_once: Annotated[
        int | None, typer.Option(help="Most concurrent requests. 0: no limit.")
    ] = None
    weight: Annotated[
        float | None,
        typer.Option(help="Divides the cost of a request in its tenant's share. 0: 1."),
    ] = None
    deadline: Annotated[
        float | None, typer.Option(help="Deadline for the first token, in seconds. 0: none.")
    ] = None
    ttft_target: Annotated[
        float | None, typer.Option(help="Target for the time to first token, in seconds. 0: none.")
    ] = None
    itl_target: Annotated[
        float | None,
        typer.Option(
            help="Target for the inter-token latency, in seconds. 0: the routers' setting."
        ),
    ] = None
    waits: Annotated[
        bool | None,
        typer.Option(
            "--wait/--refuse",
            help="Queue or reject requests that would miss their target or deadline.",
        ),
    ] = None
    max_wait: Annotated[
        float | None,
        typer.Option(help="Longest time in the queue, in seconds. 0: the routers' setting."),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the given options, by the names of the record's fields."""
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
    """Change the policy of a class, effective within a second."""
    from baton.cli.admin.classes import commands
    from baton.cli.admin.target import reach

    target = reach(options, console(), json)
    commands.set_class(target, name, policy.given())


@list_command(classes_app)
@expand_options
def classes_ls(options: EtcdOptions, json: Json = False) -> None:
    """List the policy of each class."""
    from baton.cli.admin.classes import commands
    from baton.cli.admin.target import reach

    commands.list_classes(reach(options, console(), json))
