"""The options of `baton policies set`."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class PolicyOptions:
    """What a policy says."""

    fallback: Annotated[
        list[str] | None,
        typer.Option(
            help="Model that answers instead, if requests would wait too long. May be repeated, "
            "the first choice first."
        ),
    ] = None
    wait_seconds: Annotated[
        float, typer.Option(help="Predicted seconds in the queue beyond which it answers.")
    ] = 5.0
    ask: Annotated[
        bool,
        typer.Option(help="Use fallbacks only for requests with `baton.fallback` set to allow."),
    ] = False
    queueing: Annotated[
        list[str] | None,
        typer.Option(
            help="Priority class whose requests queue instead, unless they allow fallbacks. May "
            "be repeated. none: no class. Default: premium."
        ),
    ] = None
    class_: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            help="Priority class that may ask for the model. May be repeated. Default: all.",
        ),
    ] = None
    tenant: Annotated[
        list[str] | None,
        typer.Option(help="Tenant that may ask for the model. May be repeated. Default: all."),
    ] = None
    context: Annotated[
        list[str] | None,
        typer.Option(
            help="The most tokens of prompt and output for tenants of a tier: TIER=TOKENS. May be "
            "repeated."
        ),
    ] = None
    allow_missing: Annotated[
        bool, typer.Option(help="Accept models that the cluster does not have yet.")
    ] = False
