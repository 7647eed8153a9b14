"""A request that does not exist, as the options of `baton route explain` describe it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

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
