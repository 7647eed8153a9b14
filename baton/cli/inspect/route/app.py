"""The commands of `baton route`, as the command line has them."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from baton.cli.inspect.route.described_request import DescribedRequest
from baton.cli.shared.options import EtcdOptions, expand_options

if TYPE_CHECKING:
    from rich.console import Console

route_app = typer.Typer(help="Where requests run, and why.", no_args_is_help=True)


@route_app.command("explain")
@expand_options
def route_explain(
    options: EtcdOptions,
    described: DescribedRequest,
    request: Annotated[
        str, typer.Argument(help="Id of a request, one of the latest 1,000 of a router.")
    ] = "",
    router: Annotated[str, typer.Option(help="Ask only this router, by its id.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a request ran where it did, or where one would run now.

    Give the id of a request, as its client was told it, or describe one by
    --prompt, --prompt-file or --prompt-tokens. Nothing is placed.
    """
    from baton.cli.inspect.route import explain

    explain.explain(options, _console(), described, request, router, as_json=json)


def _console() -> "Console":
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())
