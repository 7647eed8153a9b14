"""A hypothetical request, as described by the options of `baton route explain`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

PriorityName = Literal["batch", "interactive", "premium"]


@dataclass(frozen=True)
class DescribedRequest:
    """A hypothetical request."""

    model: Annotated[str, typer.Option(help="Model, or auto. Default: the only one.")] = ""
    prompt: Annotated[str, typer.Option(help="Prompt text.")] = ""
    prompt_file: Annotated[
        Path | None,
        typer.Option(help="File with the prompt text.", exists=True, dir_okay=False, readable=True),
    ] = None
    chat: Annotated[
        bool, typer.Option("--chat", help=("Send the text as a chat with one message."))
    ] = False
    prompt_tokens: Annotated[
        int, typer.Option(help="Prompt length, instead of a text. None of it is cached.", min=0)
    ] = 0
    max_tokens: Annotated[int, typer.Option(help="Maximum output tokens.", min=1)] = 256
    tenant: Annotated[str, typer.Option(help="Tenant of the request.")] = "default"
    priority: Annotated[
        PriorityName | None, typer.Option(help="Priority class. Default: the tenant's.")
    ] = None
    adapter: Annotated[str, typer.Option(help="Adapter of the model.")] = ""
    deadline: Annotated[
        float, typer.Option(help="Deadline for the first token, in seconds. 0: none.", min=0)
    ] = 0
    ttft_target: Annotated[
        float, typer.Option(help="Target for the time to first token, in seconds. 0: none.", min=0)
    ] = 0
    tools: Annotated[
        bool, typer.Option("--tools", help="The request has tools. For the rules of auto.")
    ] = False
    schema: Annotated[
        bool,
        typer.Option("--schema", help="The output follows a schema. For the rules of auto."),
    ] = False
    frontend: Annotated[
        str,
        typer.Option(
            help="Frontend that tokenizes the prompt, gRPC host:port. Default: the cluster's.",
            envvar="BATON_ADDRESS",
        ),
    ] = ""
    frontend_tls: Annotated[
        bool, typer.Option("--frontend-tls", help=("Use TLS to the frontend."))
    ] = False
    frontend_ca: Annotated[
        Path | None,
        typer.Option(
            help="Authority that signed the frontend's certificate, in PEM.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None

    @property
    def text(self) -> str:
        """The prompt; empty: only its length is given."""
        return self.prompt_file.read_text() if self.prompt_file is not None else self.prompt
