"""What commands that change a cluster have in common on the command line."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def console() -> "Console":
    """Return the console that commands print to."""
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())
