"""What commands of operators have in common on the command line."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

Tenant = Annotated[str, typer.Option("--tenant", help="The tenant's id.")]
Project = Annotated[
    str, typer.Option("--project", help="The project's id; empty where no keys are needed.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum rows.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console() -> "Console":
    """Return the console that commands print to."""
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())
