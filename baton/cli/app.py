"""The `baton` command line."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from baton.cli.admin.adapters.app import adapters_app
from baton.cli.admin.aliases.app import aliases_app
from baton.cli.admin.auto.app import auto_app
from baton.cli.admin.backup.options import RestoreOptions, SealedOptions
from baton.cli.admin.batches.app import batches_app
from baton.cli.admin.classes.app import classes_app
from baton.cli.admin.conversations.app import conversations_app
from baton.cli.admin.db.app import db_app
from baton.cli.admin.policies.app import policies_app
from baton.cli.admin.providers.app import providers_app
from baton.cli.admin.tenancy.app import audit_app, keys_app, projects_app, tenants_app
from baton.cli.admin.usage.options import UsageOptions
from baton.cli.admin.webhooks.app import webhooks_app
from baton.cli.inspect.route.app import route_app
from baton.cli.models.app import models_app
from baton.cli.plan.options import PlanOptions
from baton.cli.shared.errors import EXIT_INTERRUPTED, CommandError
from baton.cli.shared.options import (
    CertsOptions,
    ChatCommandOptions,
    ClusterOptions,
    ConfigFile,
    EtcdOptions,
    StoreOptions,
    WorkerOptions,
    expand_options,
    list_command,
)
from baton.host.service_variables import service_variables

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its boxes break words in narrow terminals
)
config_app = typer.Typer(help="Show settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")
kv_app = typer.Typer(help="Inspect the KV stores.", no_args_is_help=True)
app.add_typer(kv_app, name="kv")
app.add_typer(models_app, name="models")
app.add_typer(route_app, name="route")
app.add_typer(tenants_app, name="tenants")
app.add_typer(projects_app, name="projects")
app.add_typer(keys_app, name="keys")
app.add_typer(classes_app, name="classes")
app.add_typer(aliases_app, name="aliases")
app.add_typer(auto_app, name="auto")
app.add_typer(adapters_app, name="adapters")
app.add_typer(providers_app, name="providers")
app.add_typer(policies_app, name="policies")
app.add_typer(audit_app, name="audit")
app.add_typer(db_app, name="db")
app.add_typer(conversations_app, name="conversations")
app.add_typer(webhooks_app, name="webhooks")
app.add_typer(batches_app, name="batches")


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def baton_(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version),
    ] = False,
) -> None:
    """Disaggregated serving of large language models."""


@app.command()
@expand_options
def up(options: ClusterOptions) -> None:
    """Start a cluster on this machine and keep it running."""
    from baton.cli.cluster.up import up as run

    run(options, _console(), _console(stderr=True))


@app.command()
@expand_options
def demo(options: WorkerOptions) -> None:
    """Start a cluster, run a few requests, and stop it."""
    from baton.cli.cluster.demo import demo as run

    cluster = ClusterOptions(
        **vars(options), http_port=0, grpc_port=0, cluster=f"demo-{os.getpid()}"
    )
    if not run(cluster, _console(), _console(stderr=True)):
        raise typer.Exit(EXIT_INTERRUPTED)


@app.command()
@expand_options
def chat(
    options: ChatCommandOptions,
    question: Annotated[
        str, typer.Argument(help="Ask one question and exit. Default: an interactive chat.")
    ] = "",
) -> None:
    """Chat with a model."""
    address = options.resolve()
    from baton.cli.chat import chat as run

    run(address, options, question, _console())


@app.command()
@expand_options
def status(
    options: EtcdOptions,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Show the /metrics address of each instance.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the instances of a cluster with their health and load."""
    cluster = options.resolve()
    from baton.cli.inspect.status import status as run

    run(cluster, _console(), metrics, json)


@app.command()
@expand_options
def usage(
    options: UsageOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report tokens and cost per project."""
    from baton.cli.admin.usage.command import usage as run
    from baton.telemetry import logs

    logs.configure("usage", "usage", level="error")
    run(options, _console(), json)


@app.command()
@expand_options
def backup(
    options: SealedOptions,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The backup, or a directory, in which it is named by cluster and time.",
            show_default=False,
        ),
    ],
    keep: Annotated[
        int, typer.Option(help="Latest backups to keep in the directory. Default: all.", min=0)
    ] = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all of an existing backup instead.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Back up tenants, keys, budgets, spending, salts, audit.

    Everything in etcd that outlives a cluster's processes, as of one
    moment, sealed with a passphrase. Serving is not affected.
    """
    from baton.cli.admin.backup import command

    if verify:
        command.verify(options, path, _console(), json)
    else:
        command.backup(options, path, keep, _console(), json)


@app.command()
@expand_options
def restore(
    options: RestoreOptions,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.", show_default=False)],
    origin: Annotated[
        str,
        typer.Option("--from", help="Cluster of the backup, if it is another one."),
    ] = "",
    revive: Annotated[
        bool,
        typer.Option(
            "--revive",
            help="Bring back what was revoked, archived, disabled or deleted since the backup.",
        ),
    ] = False,
    usage: Annotated[
        str,
        typer.Option(
            help="Complete lost spending from usage records: a file or directory of them, or "
            "`postgres` for the database of state.url."
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Restore a backup into an empty etcd or a running cluster.

    Newer records stay. A restore that was interrupted can be repeated.
    """
    from baton.cli.admin.backup.command import restore as run

    run(options, path, origin, revive, usage, _console(), json)


@app.command()
@expand_options
def plan(
    options: PlanOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Calculate how many GPUs a model needs, and what to expect."""
    from baton.cli.plan.command import plan as run

    run(options, _console(), json)


@kv_app.command("stat")
@expand_options
def kv_stat(
    options: StoreOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the objects and bytes of each store, tier and tenant."""
    target = options.target()
    from baton.cli.inspect.kv import commands

    commands.stat(target, _console(), json)


@list_command(kv_app)
@expand_options
def kv_ls(
    options: StoreOptions,
    prefix: Annotated[str, typer.Argument(help="Key prefix, hexadecimal. Default: all keys.")] = "",
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's objects.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of objects to list.", min=1)] = 100,
) -> None:
    """List objects."""
    target = options.target()
    from baton.cli.inspect.kv import commands

    commands.ls(target, _console(), prefix, tenant, limit)


@kv_app.command("get")
@expand_options
def kv_get(
    options: StoreOptions,
    key: Annotated[str, typer.Argument(help="Key or unique key prefix, hexadecimal.")],
    out: Annotated[Path | None, typer.Option(help="Output file. Default: standard output.")] = None,
) -> None:
    """Verify one object and write its bytes."""
    target = options.target()
    from baton.cli.inspect.kv import commands

    commands.get(target, key, out)


@kv_app.command("drop")
@expand_options
def kv_drop(
    options: StoreOptions,
    keys: Annotated[list[str], typer.Argument(help="Complete keys, hexadecimal.")],
) -> None:
    """Drop objects from every tier."""
    target = options.target()
    from baton.cli.inspect.kv import commands

    commands.drop(target, _console(), keys)


@kv_app.command("verify")
@expand_options
def kv_verify(options: StoreOptions) -> None:
    """Read every object and check its digest.

    The exit code is 1 if the command finds corrupt objects.
    """
    target = options.target()
    from baton.cli.inspect.kv import commands

    commands.verify(target, _console())


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    options_metavar="PROCESS [--SETTING VALUE]...",
)
def serve(context: typer.Context) -> None:
    """Run one process of a cluster; see `baton serve --help`."""
    from baton.serve import main as run

    run(context.args)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    options_metavar="TRACE [--OPTION VALUE]...",
)
def simulate(context: typer.Context) -> None:
    """Replay a trace of requests on a simulated cluster."""
    from baton.cli.simulate import simulate as run

    run(context.args)


@config_app.command("show")
def config_show(
    process: Annotated[
        str, typer.Argument(help="frontend, router, prefill, decode or kvstore.")
    ] = "",
    config: ConfigFile = None,
) -> None:
    """Show every setting with its value and source; secrets are hidden."""
    from baton.cli.inspect.config import show

    show(process, config, _console())


@app.command()
@expand_options
def certs(options: CertsOptions) -> None:
    """Create certificates for TLS inside a cluster."""
    from baton.cli.admin.certs.command import certs as run

    run(options, _console())


@app.command()
def version() -> None:
    """Print the release, its commit and the protocol's version."""
    from baton.rpc.protocol import describe

    typer.echo(describe())


def main() -> NoReturn:
    """Run the command line; a failure is one sentence and an exit code."""
    # gRPC's threads do not survive a fork, and nothing here forks without exec.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for name in service_variables(os.environ):
        del os.environ[name]  # BATON_GRPC_PORT is an option's variable
    _leave_only(sys.argv[1:2])
    try:
        app(prog_name="baton")
    except CommandError as error:
        _console(stderr=True).print(f"baton: {error}", markup=False, highlight=False)
        raise SystemExit(error.code) from None
    raise SystemExit(0)


def _leave_only(names: Sequence[str]) -> None:
    """Leave out all commands but those named, if there are such: to build all takes 70 ms."""
    commands = [
        one for one in app.registered_commands if one.callback and one.callback.__name__ in names
    ]
    groups = [one for one in app.registered_groups if one.name in names]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # In a file a sentence is a line: who reads it there wraps it, or searches it.
    return Console(stderr=stderr, soft_wrap=not stream.isatty())
