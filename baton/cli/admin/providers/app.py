"""The command `baton providers`, as the command line has it."""

from typing import Annotated

import typer

from baton.cli.admin.output import Json, console
from baton.cli.admin.providers.options import ProviderOptions
from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command
from baton.host.networks import PUBLIC

providers_app = typer.Typer(
    help="Manage providers: models of other operators, by names here.",
    no_args_is_help=True,
)
ProviderName = Annotated[str, typer.Argument(help="The provider's name, for example openai.")]


@providers_app.command("set")
@expand_options
def providers_set(
    target: ChangeOptions, name: ProviderName, provider: ProviderOptions, json: Json = False
) -> None:
    """Create a provider, or replace all of it, within a second."""
    from baton.cli.admin.providers import commands
    from baton.cli.admin.target import reach

    commands.set_provider(reach(target, console(), json), name, provider)


@providers_app.command("rm")
@expand_options
def providers_rm(options: ChangeOptions, name: ProviderName, json: Json = False) -> None:
    """Remove a provider: requests for its models are rejected from then on."""
    from baton.cli.admin.providers import commands
    from baton.cli.admin.target import reach

    commands.remove_provider(reach(options, console(), json), name)


@providers_app.command("check")
@expand_options
def providers_check(
    options: EtcdOptions,
    name: ProviderName,
    allowed_networks: Annotated[
        str,
        typer.Option(
            envvar="BATON_PROVIDERS_ALLOWED_NETWORKS",
            help="Networks that upstreams may be in, as frontends have them, separated by commas.",
        ),
    ] = PUBLIC,
    timeout_seconds: Annotated[float, typer.Option(help="Longest time of each part.")] = 10.0,
    json: Json = False,
) -> None:
    """Check a provider from this machine: DNS, TLS, keys and models.

    The models are listed, or asked for one token each if the upstream has no list.
    """
    from baton.cli.admin.providers import commands
    from baton.cli.admin.target import reach

    target = reach(options, console(), json)
    commands.check(target, name, allowed_networks, timeout_seconds)


@list_command(providers_app)
@expand_options
def providers_ls(options: EtcdOptions, json: Json = False) -> None:
    """List providers, their models and the references to their keys."""
    from baton.cli.admin.providers import commands
    from baton.cli.admin.target import reach

    commands.list_providers(reach(options, console(), json))
