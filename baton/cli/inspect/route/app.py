"""The commands of `baton route`, as the command line has them."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from baton.cli.inspect.route.described_request import DescribedRequest
from baton.cli.inspect.route.record_options import RecordOptions
from baton.cli.shared.options import EtcdOptions, expand_options

if TYPE_CHECKING:
    from rich.console import Console

route_app = typer.Typer(help="Explain the placement of requests.", no_args_is_help=True)


@route_app.command("explain")
@expand_options
def route_explain(
    options: EtcdOptions,
    described: DescribedRequest,
    records: RecordOptions,
    request: Annotated[
        str,
        typer.Argument(
            help="Request id: one of each router's latest 1,000, one that a router keeps on disk, "
            "or one with a usage record in --path or --clickhouse-url."
        ),
    ] = "",
    router: Annotated[str, typer.Option(help="Query only this router, by id.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain why a request failed, was slow, or runs where it does.

    Name the id that the client received, or describe a request with
    --prompt, --prompt-file or --prompt-tokens. The router does not place
    the described request.
    """
    from baton.cli.inspect.route import explain

    explain.explain(options, _console(), described, records, request, router, as_json=json)


def _console() -> "Console":
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())
