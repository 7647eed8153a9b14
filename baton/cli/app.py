"""The `baton` command line."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from baton.cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from baton.cli.kv_stores import Where

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")
kv_app = typer.Typer(help="What the KV stores hold.", no_args_is_help=True)
app.add_typer(kv_app, name="kv")

Prefill = Annotated[int, typer.Option(help="Workers that read prompts.")]
Decode = Annotated[int, typer.Option(help="Workers that write answers.")]
Combined = Annotated[int, typer.Option(help="Workers that do both.")]
ModelPath = Annotated[
    Path | None,
    typer.Option(help="Checkpoint directory (Hugging Face).", envvar="BATON_ENGINE_MODEL"),
]
ModelName = Annotated[
    str,
    typer.Option(
        help="Name that clients ask for. Default: the directory's.",
        envvar="BATON_ENGINE_MODEL_NAME",
    ),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float64"],
    typer.Option(help="Element type.", envvar="BATON_ENGINE_DTYPE"),
]
Engine = Annotated[
    Literal["torch", "sim"],
    typer.Option(
        help="sim takes the time of a model and computes none.", envvar="BATON_ENGINE_KIND"
    ),
]
EtcdEndpoint = Annotated[
    str,
    typer.Option(help="host:port[,host:port…] of an etcd.", envvar="BATON_ETCD_ENDPOINTS"),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", help="The cluster's name.", envvar="BATON_ETCD_CLUSTER")
]
Address = Annotated[
    str,
    typer.Option(
        help="The frontend's gRPC host:port. Default: the cluster that runs here.",
        envvar="BATON_ADDRESS",
    ),
]


StoreAddress = Annotated[
    str, typer.Option("--store", help="A store's gRPC host:port. Default: all of the cluster.")
]


def _say_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def baton_(
    version: Annotated[
        bool,
        typer.Option("--version", help="Say which release this is.", callback=_say_version),
    ] = False,
) -> None:
    """Disaggregated serving of large language models."""


@app.command()
def up(
    prefill: Prefill = 2,
    decode: Decode = 2,
    combined: Combined = 0,
    model: ModelPath = None,
    model_name: ModelName = "",
    dtype: Dtype = "auto",
    engine: Engine = "torch",
    http_port: Annotated[
        int, typer.Option(help="Of the OpenAI API; 0: a free one.", envvar="BATON_HTTP_PORT")
    ] = 8000,
    grpc_port: Annotated[
        int, typer.Option(help="Of the gRPC API; 0: a free one.", envvar="BATON_GRPC_PORT")
    ] = 50051,
    frontends: Annotated[
        int, typer.Option(help="Frontend processes; they share the two ports.")
    ] = 1,
    etcd_endpoint: EtcdEndpoint = "",
    cluster: ClusterName = "local",
    pin: Annotated[
        bool, typer.Option("--pin", help="Each engine computes on cores of its own.")
    ] = False,
) -> None:
    """Start a cluster on this machine and stay."""
    from baton.cli.local.plan import Wanted
    from baton.cli.up import up as run

    wanted = Wanted(
        prefill=prefill,
        decode=decode,
        combined=combined,
        model=model,
        model_name=model_name,
        dtype=dtype,
        engine=engine,
        http_port=http_port,
        grpc_port=grpc_port,
        frontends=frontends,
        etcd_endpoints=_endpoints(etcd_endpoint),
        cluster=cluster,
        pin=pin,
    )
    run(wanted, _console(), _console(stderr=True))


@app.command()
def demo(
    prefill: Prefill = 2,
    decode: Decode = 2,
    combined: Combined = 0,
    model: ModelPath = None,
    model_name: ModelName = "",
    dtype: Dtype = "auto",
    engine: Engine = "torch",
) -> None:
    """Start a cluster, ask it a question, show what happened, and stop."""
    from baton.cli.demo import demo as run
    from baton.cli.local.plan import Wanted

    wanted = Wanted(
        prefill=prefill,
        decode=decode,
        combined=combined,
        model=model,
        model_name=model_name,
        dtype=dtype,
        engine=engine,
        http_port=0,
        grpc_port=0,
    )
    if not run(wanted, _console(), _console(stderr=True)):
        raise typer.Exit(130)


@app.command()
def chat(
    question: Annotated[str, typer.Argument(help="Ask this and leave. Default: converse.")] = "",
    address: Address = "",
    model: Annotated[str, typer.Option(help="Which model. Default: the only one.")] = "",
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256,
    temperature: Annotated[float | None, typer.Option(help="0 to 2.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the random draws.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.")] = 300.0,
    steps: Annotated[bool, typer.Option(help="Show what happened after each answer.")] = False,
) -> None:
    """Talk to a model; it answers as it thinks."""
    from baton.cli.chat import Speaker
    from baton.cli.chat import chat as run
    from baton.client import Options

    options: Options = {"max_tokens": max_tokens, "timeout": timeout}
    if temperature is not None:
        options["temperature"] = temperature
    if seed is not None:
        options["seed"] = seed
    speaker = Speaker(address or _local_address(), model, system, steps, options)
    run(speaker, question, _console())


@app.command()
def models(address: Address = "") -> None:
    """List the models that can be asked."""
    from baton.cli.chat import models as run

    run(address or _local_address(), _console())


@app.command()
def status(etcd_endpoint: EtcdEndpoint = "", cluster: ClusterName = "") -> None:
    """Show who is in the cluster, and how they are."""
    from baton.cli.status import status as run

    run(*_cluster(etcd_endpoint, cluster), _console())


@kv_app.command("stat")
def kv_stat(
    store: StoreAddress = "",
    etcd_endpoint: EtcdEndpoint = "",
    cluster: ClusterName = "",
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what each store, tier and tenant holds."""
    from baton.cli import kv

    kv.stat(_where(store, etcd_endpoint, cluster), _console(), json)


@kv_app.command("ls")
def kv_ls(
    prefix: Annotated[str, typer.Argument(help="Of keys, hexadecimal. Default: all.")] = "",
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 100,
    store: StoreAddress = "",
    etcd_endpoint: EtcdEndpoint = "",
    cluster: ClusterName = "",
) -> None:
    """List objects."""
    from baton.cli import kv

    kv.ls(_where(store, etcd_endpoint, cluster), _console(), prefix, tenant, limit)


@kv_app.command("get")
def kv_get(
    key: Annotated[str, typer.Argument(help="Its key or how it begins, hexadecimal.")],
    out: Annotated[Path | None, typer.Option(help="File. Default: standard output.")] = None,
    store: StoreAddress = "",
    etcd_endpoint: EtcdEndpoint = "",
    cluster: ClusterName = "",
) -> None:
    """Write the bytes of one object, verified."""
    from baton.cli import kv

    kv.get(_where(store, etcd_endpoint, cluster), key, out)


@kv_app.command("drop")
def kv_drop(
    keys: Annotated[list[str], typer.Argument(help="Whole keys, hexadecimal.")],
    store: StoreAddress = "",
    etcd_endpoint: EtcdEndpoint = "",
    cluster: ClusterName = "",
) -> None:
    """Forget objects in every tier."""
    from baton.cli import kv

    kv.drop(_where(store, etcd_endpoint, cluster), _console(), keys)


@kv_app.command("verify")
def kv_verify(
    store: StoreAddress = "", etcd_endpoint: EtcdEndpoint = "", cluster: ClusterName = ""
) -> None:
    """Read every object and check its digest; exit code 1 if some were wrong."""
    from baton.cli import kv

    kv.verify(_where(store, etcd_endpoint, cluster), _console())


@config_app.command("show")
def config_show(
    process: Annotated[
        str, typer.Argument(help="frontend, router, prefill, decode or kvstore.")
    ] = "",
) -> None:
    """Show every setting, its value, and where that came from; secrets are hidden."""
    from baton.cli.config import show

    show(process, _console())


@app.command()
def version() -> None:
    """Say which release this is."""
    import baton

    typer.echo(f"baton {baton.__version__}")


def main() -> NoReturn:
    """Run the command line; what goes wrong is one sentence and an exit code."""
    # gRPC's threads do not survive a fork, and nothing here forks without exec.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        app()
    except CommandError as error:
        typer.echo(f"baton: {error}", err=True)
        raise SystemExit(error.code) from None
    raise SystemExit(0)


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr)


def _endpoints(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _cluster(etcd_endpoint: str, cluster: str) -> tuple[tuple[str, ...], str]:
    """Where etcd is, and the cluster's name; those of the cluster that runs here if not said."""
    from baton.cli.local.rundir import running

    here = running()
    endpoints = _endpoints(etcd_endpoint) or (here.etcd if here else ("127.0.0.1:2379",))
    return endpoints, cluster or (here.cluster if here else "local")


def _where(store: str, etcd_endpoint: str, cluster: str) -> "Where":
    from baton.cli.kv_stores import Where

    return Where(store, *_cluster(etcd_endpoint, cluster))


def _local_address() -> str:
    from baton.cli.local.rundir import running

    here = running()
    return here.grpc if here else f"127.0.0.1:{os.environ.get('BATON_GRPC_PORT', '50051')}"
