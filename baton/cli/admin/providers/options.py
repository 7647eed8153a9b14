"""The options of `baton providers set`."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class ProviderOptions:
    """What a provider is."""

    url: Annotated[
        str, typer.Option(help="What the API's paths follow: https://api.openai.com/v1.")
    ]
    model: Annotated[
        list[str],
        typer.Option(
            help="A model: NAME[=UPSTREAM],context=N,output=N in tokens, ,price=IN/CACHED/OUT in "
            "dollars per million of them, and ,hedge=MODEL of another provider, asked "
            "too if the first token is late. May be repeated."
        ),
    ]
    api: Annotated[
        str, typer.Option(help="Its API: openai, as of most providers, or anthropic.")
    ] = "openai"
    key: Annotated[
        list[str] | None,
        typer.Option(
            help="Reference to an API key, which frontends read: file:/PATH or env:NAME. May be "
            "repeated."
        ),
    ] = None
    quirk: Annotated[
        list[str] | None,
        typer.Option(
            help="A difference of the upstream: max_tokens, no_stream_options, 2023-06-01, "
            "drop:FIELD or takes:FIELD. May be repeated."
        ),
    ] = None
    http: Annotated[
        bool,
        typer.Option(help="Accept http:// within the networks of providers.allowed_networks."),
    ] = False
    first_token_seconds: Annotated[
        float, typer.Option(help="Longest time to the first token, retries included.")
    ] = 60.0
    token_seconds: Annotated[float, typer.Option(help="Longest time between two tokens.")] = 30.0
    connections: Annotated[int, typer.Option(help="Most connections of a frontend.")] = 256
