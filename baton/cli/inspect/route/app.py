"""The commands of `baton route`, as the command line has them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from baton.cli.shared.options import EtcdOptions, expand_options

if TYPE_CHECKING:
    from rich.console import Console

route_app = typer.Typer(help="Where requests run, and why.", no_args_is_help=True)
PriorityName = Literal["batch", "interactive", "premium"]


@dataclass(frozen=True)
class DescribedRequest:
    """A request that does not exist."""

    model: Annotated[str, typer.Option(help="Its model. Default: the only one.")] = ""
    prompt: Annotated[str, typer.Option(help="Its text.")] = ""
    prompt_file: Annotated[
        Path | None,
        typer.Option(help="A file with its text.", exists=True, dir_okay=False, readable=True),
    ] = None
    chat: Annotated[bool, typer.Option("--chat", help="The text is a chat's one message.")] = False
    prompt_tokens: Annotated[
        int, typer.Option(help="Or how long it is: nothing of it is cached.", min=0)
    ] = 0
    max_tokens: Annotated[int, typer.Option(help="Longest output.", min=1)] = 256
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = "default"
    priority: Annotated[
        PriorityName | None, typer.Option(help="Its class. Default: the tenant's.")
    ] = None
    adapter: Annotated[str, typer.Option(help="One of the model's adapters.")] = ""
    deadline: Annotated[
        float, typer.Option(help="Seconds to the first token, at most; 0: any.", min=0)
    ] = 0
    ttft_target: Annotated[
        float, typer.Option(help="Seconds to the first token to aim at; 0: any.", min=0)
    ] = 0
    frontend: Annotated[
        str,
        typer.Option(
            help="Frontend that tokenizes, host:port of gRPC. Default: the one that runs here.",
            envvar="BATON_ADDRESS",
        ),
    ] = ""
    frontend_tls: Annotated[bool, typer.Option("--frontend-tls", help="It serves TLS.")] = False
    frontend_ca: Annotated[
        Path | None,
        typer.Option(
            help="The authority to trust there, in PEM.", exists=True, dir_okay=False, readable=True
        ),
    ] = None

    @property
    def text(self) -> str:
        """Its prompt; empty: it has only a length."""
        return self.prompt_file.read_text() if self.prompt_file is not None else self.prompt


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
