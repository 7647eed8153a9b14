"""Options that commands share, as dataclasses, and what lets a command take one as a parameter."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from baton.cli.config_file import take_defaults
from baton.cli.reach import require_listening

if TYPE_CHECKING:
    from baton.client import Options


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of its dataclass parameters as options of its own.

    Typer knows options only as parameters of a function. A parameter whose type is a dataclass is
    replaced by the dataclass's fields, and the command is called with an instance of it.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            types = get_type_hints(kind, include_extras=True)
            found = [(f.name, types[f.name], f.default) for f in fields(kind)]
        else:
            found = [(name, kind, parameter.default)]
        parameters += [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for option, annotation, default in found
        ]

    def run(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{f.name: values.pop(f.name) for f in fields(kind)})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by inspect
    return run


def endpoints(text: str) -> tuple[str, ...]:
    """Return the `host:port`s of a list separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


EtcdEndpoint = Annotated[
    str,
    typer.Option(help="host:port[,host:port…] of an etcd.", envvar="BATON_ETCD_ENDPOINTS"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="Settings file (TOML), for all processes.", envvar="BATON_CONFIG"),
]
ClusterConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Settings file (TOML), for all processes and these options.",
        envvar="BATON_CONFIG",
        is_eager=True,
        callback=take_defaults,
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", help="The cluster's name.", envvar="BATON_ETCD_CLUSTER")
]


@dataclass(frozen=True)
class WorkerOptions:
    """The workers of a local cluster and the model that they serve."""

    config: ClusterConfigFile = None
    prefill: Annotated[int, typer.Option(help="Prefill workers.")] = 2
    decode: Annotated[int, typer.Option(help="Decode workers.")] = 2
    combined: Annotated[int, typer.Option(help="Workers that prefill and decode.")] = 0
    model: Annotated[
        Path | None,
        typer.Option(help="Checkpoint directory (Hugging Face).", envvar="BATON_ENGINE_MODEL"),
    ] = None
    model_name: Annotated[
        str,
        typer.Option(
            help="Name that clients request. Default: the directory's.",
            envvar="BATON_ENGINE_MODEL_NAME",
        ),
    ] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float64"],
        typer.Option(help="Element type.", envvar="BATON_ENGINE_DTYPE"),
    ] = "auto"
    engine: Annotated[
        Literal["torch", "sim", "vllm"],
        typer.Option(
            help="torch, vLLM (make vllm), or sim, which only takes the time that a model would.",
            envvar="BATON_ENGINE_KIND",
        ),
    ] = "torch"


@dataclass(frozen=True)
class ClusterOptions(WorkerOptions):
    """A local cluster, as `baton up` takes it."""

    http_port: Annotated[
        int, typer.Option(help="Port of the OpenAI API; 0: a free one.", envvar="BATON_HTTP_PORT")
    ] = 8000
    grpc_port: Annotated[
        int, typer.Option(help="Port of the gRPC API; 0: a free one.", envvar="BATON_GRPC_PORT")
    ] = 50051
    frontends: Annotated[
        int, typer.Option(help="Frontend processes; they share the two ports.")
    ] = 1
    etcd_endpoint: EtcdEndpoint = ""
    """Empty: the cluster runs an etcd of its own."""
    cluster: ClusterName = "local"
    pin: Annotated[bool, typer.Option("--pin", help="Pin each engine to CPU cores of its own.")] = (
        False
    )

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        return endpoints(self.etcd_endpoint)


@dataclass(frozen=True)
class EtcdOptions:
    """Which cluster is meant; by default the one that `baton up` runs on this machine."""

    etcd_endpoint: EtcdEndpoint = ""
    cluster: ClusterName = ""

    def resolve(self) -> tuple[tuple[str, ...], str]:
        """Return etcd's endpoints and the cluster's name.

        Raises:
            CommandError: nothing listens there.
        """
        from baton.cli.local.rundir import running

        local = running()
        name = self.cluster or (local.cluster if local else "local")
        found = endpoints(self.etcd_endpoint) or (local.etcd if local else ("127.0.0.1:2379",))
        require_listening(
            found,
            "--etcd-endpoint",
            f"No cluster is here: etcd does not answer at {', '.join(found)}. Start a cluster with "
            "`baton up`, or say where its etcd is with --etcd-endpoint or BATON_ETCD_ENDPOINTS.",
        )
        return found, name


@dataclass(frozen=True)
class StoreTarget:
    """The KV stores that are meant: one by its address, else all that etcd lists."""

    address: str
    endpoints: tuple[str, ...]
    cluster: str


@dataclass(frozen=True)
class StoreOptions(EtcdOptions):
    """Which KV stores are meant: one by its address, or all of a cluster."""

    store: Annotated[
        str, typer.Option(help="A store's gRPC host:port. Default: all of the cluster.")
    ] = ""

    def target(self) -> StoreTarget:
        """Return which stores are meant.

        Raises:
            CommandError: nothing listens at the store, or at etcd.
        """
        if not self.store:
            return StoreTarget("", *self.resolve())
        require_listening(
            (self.store,),
            "--store",
            f"No store answers at {self.store}: `baton status` lists the stores' addresses.",
        )
        return StoreTarget(self.store, (), "")


@dataclass(frozen=True)
class FrontendOptions:
    """Which frontend to use."""

    address: Annotated[
        str,
        typer.Option(
            help="The frontend's gRPC host:port. Default: the cluster that runs here.",
            envvar="BATON_ADDRESS",
        ),
    ] = ""

    def resolve(self) -> str:
        """Return the frontend's address.

        Raises:
            CommandError: nothing listens there.
        """
        import os

        from baton.cli.local.rundir import running

        local = running()
        default = f"127.0.0.1:{os.environ.get('BATON_GRPC_PORT', '50051')}"
        address = self.address or (local.grpc if local else default)
        require_listening(
            (address,),
            "--address",
            f"No frontend answers at {address}: start a cluster with `baton up`, or say where one "
            "is with --address or BATON_ADDRESS.",
        )
        return address


@dataclass(frozen=True)
class ChatOptions(FrontendOptions):
    """A conversation: with which frontend and model, and how it is sampled."""

    model: Annotated[str, typer.Option(help="Model name. Default: the only one.")] = ""
    adapter: Annotated[str, typer.Option(help="One of the model's adapters.")] = ""
    system: Annotated[str, typer.Option(help="System prompt.")] = ""
    max_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 256
    temperature: Annotated[float | None, typer.Option(help="0 to 2.")] = None
    seed: Annotated[int | None, typer.Option(help="Of the sampling.")] = None
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.")] = 300.0
    steps: Annotated[bool, typer.Option(help="Show the steps of each request.")] = False

    def sampling(self) -> "Options":
        """Return the options of each request."""
        options: Options = {"max_tokens": self.max_tokens, "timeout": self.timeout}
        if self.adapter:
            options["adapter"] = self.adapter
        if self.temperature is not None:
            options["temperature"] = self.temperature
        if self.seed is not None:
            options["seed"] = self.seed
        return options
