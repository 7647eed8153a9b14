"""Options shared by commands, as dataclasses, and the decorator that expands them."""

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from baton.cli.shared.config_file import take_defaults
from baton.cli.shared.errors import CommandError
from baton.cli.shared.reach import require_listening

if TYPE_CHECKING:
    import grpc

    from baton.cli.shared.cluster_address import ClusterAddress
    from baton.client import Options


MODEL_ENV = "BATON_ENGINE_MODEL"


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the fields of its dataclass parameters as options.

    Typer supports options only as parameters of a function. A parameter whose type is a dataclass
    is replaced by the dataclass's fields, and the command is called with an instance of it.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            types = get_type_hints(kind, include_extras=True)
            found = [
                (
                    f.name,
                    types[f.name],
                    inspect.Parameter.empty if f.default is MISSING else f.default,
                )
                for f in fields(kind)
            ]
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


def list_command(app: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a command as `ls`, and as `list`, which the help omits."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        app.command("list", hidden=True)(command)
        return app.command("ls")(command)

    return add


def endpoints(text: str) -> tuple[str, ...]:
    """Return the `host:port` values of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def one_model_of_environment(context: typer.Context, value: list[str] | None) -> list[str]:
    """Return the values of --model, or that of its variable, as one even with spaces in it."""
    source = context.get_parameter_source("model")
    given = source is not None and source.name == "COMMANDLINE"
    variable = os.environ.get(MODEL_ENV, "")
    return [variable] if variable and not given else list(value or ())


EtcdEndpoint = Annotated[
    str,
    typer.Option(help="etcd endpoints, host:port[,host:port…].", envvar="BATON_ETCD_ENDPOINTS"),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="Settings file (TOML) of all processes.", envvar="BATON_CONFIG"),
]
ClusterConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Settings file (TOML) of all processes and of these options.",
        envvar="BATON_CONFIG",
        is_eager=True,
        callback=take_defaults,
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", help="Cluster name.", envvar="BATON_ETCD_CLUSTER")
]
LocalName = Annotated[
    str,
    typer.Option("--cluster", help="Name of a cluster on this machine. Default: the only one."),
]


@dataclass(frozen=True)
class WorkerOptions:
    """The workers of a local cluster and the model that they serve."""

    config: ClusterConfigFile = None
    prefill: Annotated[int, typer.Option(help="Number of prefill workers.")] = 2
    decode: Annotated[int, typer.Option(help="Number of decode workers.")] = 2
    combined: Annotated[int, typer.Option(help="Number of workers that prefill and decode.")] = 0
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH[:OPTION=VALUE,...]",
            help=(
                "Hugging Face checkpoint directory; again for each further model. Its options: "
                "name, prefill, decode, combined, dtype, engine. Default: BATON_ENGINE_MODEL, "
                "then Baton Tiny."
            ),
            callback=one_model_of_environment,
        ),
    ] = None
    model_name: Annotated[
        str,
        typer.Option(
            help="Name of the only model in requests. Default: the directory's name.",
            envvar="BATON_ENGINE_MODEL_NAME",
        ),
    ] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float64"],
        typer.Option(help="Data type of weights and activations.", envvar="BATON_ENGINE_DTYPE"),
    ] = "auto"
    engine: Annotated[
        Literal["torch", "sim", "vllm"],
        typer.Option(
            help=(
                "Engine: torch, vllm (install with `make vllm`), or sim (simulates a model's "
                "timing)."
            ),
            envvar="BATON_ENGINE_KIND",
        ),
    ] = "torch"


@dataclass(frozen=True)
class ClusterOptions(WorkerOptions):
    """A local cluster, as `baton up` takes it."""

    host: Annotated[
        str,
        typer.Option(help="Address of both APIs. 0.0.0.0: all interfaces. Default: 127.0.0.1."),
    ] = ""
    http_port: Annotated[
        int,
        typer.Option(help="Port of the OpenAI API. 0: any free port.", envvar="BATON_HTTP_PORT"),
    ] = 8000
    grpc_port: Annotated[
        int, typer.Option(help="Port of the gRPC API. 0: any free port.", envvar="BATON_GRPC_PORT")
    ] = 50051
    frontends: Annotated[int, typer.Option(help="Number of frontends. They share both ports.")] = 1
    etcd_endpoint: EtcdEndpoint = ""
    """Empty: the cluster runs a private etcd."""
    cluster: ClusterName = "local"
    auth: Annotated[
        Literal["off", "keys"],
        typer.Option(
            help="keys: require API keys; `baton up` creates one if the cluster has none.",
            envvar="BATON_AUTH_MODE",
        ),
    ] = "off"
    grpc_reflection: Annotated[
        bool,
        typer.Option(
            "--grpc-reflection",
            help="Enable gRPC server reflection on frontends, for tools such as grpcurl.",
        ),
    ] = False
    conversations: Annotated[
        bool,
        typer.Option(
            "--conversations",
            help="Store responses and conversations, in the database of the frontends' state.url "
            "or in one that the cluster runs.",
            envvar="BATON_CONVERSATIONS_ENABLED",
        ),
    ] = False
    batches: Annotated[
        bool,
        typer.Option(
            "--batches",
            help="Serve files and batches: rows in the database of the frontends' state.url or in "
            "one that the cluster runs, bytes in files.url or in the run's directory.",
        ),
    ] = False
    webhooks: Annotated[
        bool,
        typer.Option(
            "--webhooks",
            help="Let projects have webhook endpoints, for events of batches and of responses in "
            "the background, in the database of the frontends' state.url or in one that the "
            "cluster runs. Receivers on this machine need BATON_WEBHOOKS_ALLOW=127.0.0.0/8.",
            envvar="BATON_WEBHOOKS_ENABLED",
        ),
    ] = False
    autoscale: Annotated[
        str,
        typer.Option(
            metavar="MIN:MAX",
            help="Start and drain workers of each role as the router needs them. MIN may be 0.",
        ),
    ] = ""
    on_demand: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=(
                "Keep the workers of at most N of the models up: requests for another wait while "
                "its workers start and those of the model used longest ago end."
            ),
            show_default=False,
        ),
    ] = None
    min_stay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="With --on-demand: how long a model stays up at least."
        ),
    ] = 30.0
    pin: Annotated[bool, typer.Option("--pin", help="Pin each engine to separate CPU cores.")] = (
        False
    )

    @property
    def etcd_endpoints(self) -> tuple[str, ...]:
        return endpoints(self.etcd_endpoint)


def _tls_file(what: str, variable: str) -> Any:
    return typer.Option(help=what, envvar=variable, exists=True, dir_okay=False, readable=True)


@dataclass(frozen=True)
class CertificateOptions:
    """Certificates that a command presents to a cluster with mutual TLS."""

    tls_cert: Annotated[
        Path | None,
        _tls_file("Operator certificate, for a cluster with mutual TLS.", "BATON_TLS_CERT"),
    ] = None
    tls_key: Annotated[Path | None, _tls_file("Private key of --tls-cert.", "BATON_TLS_KEY")] = None
    tls_ca: Annotated[
        Path | None, _tls_file("Certificate authorities of the cluster.", "BATON_TLS_CA")
    ] = None
    tls_trust_domain: Annotated[
        str,
        typer.Option(
            help="Trust domain of the roles in certificates.", envvar="BATON_TLS_TRUST_DOMAIN"
        ),
    ] = "baton"
    etcd_cert: Annotated[
        Path | None,
        _tls_file("Client certificate for etcd. Default: --tls-cert.", "BATON_ETCD_CERT"),
    ] = None
    etcd_key: Annotated[Path | None, _tls_file("Private key of --etcd-cert.", "BATON_ETCD_KEY")] = (
        None
    )
    etcd_ca: Annotated[
        Path | None, _tls_file("Certificate authorities of etcd.", "BATON_ETCD_CA")
    ] = None
    etcd_plaintext: Annotated[
        bool,
        typer.Option(
            "--etcd-plaintext", help="Connect to etcd without TLS.", envvar="BATON_ETCD_PLAINTEXT"
        ),
    ] = False

    def show_certificates(self) -> None:
        """Have this command present its certificates.

        Raises:
            CommandError: files cannot be used, or some are missing.
        """
        mutual = (self.tls_cert, self.tls_key, self.tls_ca)
        if not any((*mutual, self.etcd_cert, self.etcd_key, self.etcd_ca)):
            return
        from baton.cluster.etcd import certificate as etcd_certificate
        from baton.rpc.tls import mutual as inside
        from baton.settings import EtcdSettings, StartupError, TlsSettings

        cert, key, ca = mutual
        tls = TlsSettings(cert=cert, key=key, ca=ca, trust_domain=self.tls_trust_domain)
        etcd = EtcdSettings(
            cert=self.etcd_cert,
            key=self.etcd_key,
            ca=self.etcd_ca,
            plaintext=self.etcd_plaintext,
        )
        try:
            inside.use(inside.read(tls))
            etcd_certificate.use(etcd_certificate.read(etcd, tls))
        except StartupError as error:
            raise CommandError(str(error)) from error


@dataclass(frozen=True)
class EtcdOptions(CertificateOptions):
    """Options that select a cluster; by default the one that runs on this machine."""

    etcd_endpoint: EtcdEndpoint = ""
    cluster: ClusterName = ""

    def resolve(self) -> "ClusterAddress":
        """Return the selected cluster.

        Raises:
            CommandError: there is none, the choice is ambiguous, or certificates cannot be used.
        """
        from baton.cli.shared.cluster_address import find_cluster

        self.show_certificates()
        return find_cluster(endpoints(self.etcd_endpoint), self.cluster)


@dataclass(frozen=True)
class ChangeOptions(EtcdOptions):
    """Options that select the cluster of a change."""

    before_start: Annotated[
        bool,
        typer.Option(
            "--before-start", help="Change the records of a cluster that has not started yet."
        ),
    ] = False

    def resolve(self) -> "ClusterAddress":
        """Return the selected cluster, which must have registered processes unless `--before-start`
        is given.

        Raises:
            CommandError: as `EtcdOptions.resolve`, or none of its processes is registered.
        """
        from baton.cli.shared.cluster_address import require_registered

        address = super().resolve()
        if not self.before_start:
            require_registered(address)
        return address


@dataclass(frozen=True)
class StoreTarget:
    """The selected KV stores: one by its address, else all that etcd lists."""

    address: str
    cluster: "ClusterAddress | None"
    """Set if there is no address."""


@dataclass(frozen=True)
class StoreOptions(EtcdOptions):
    """Options that select KV stores: one by its address, or all of a cluster."""

    store: Annotated[
        str, typer.Option(help="gRPC host:port of a store. Default: all stores of the cluster.")
    ] = ""

    def target(self) -> StoreTarget:
        """Return the selected stores.

        Raises:
            CommandError: nothing listens at the store, or at etcd.
        """
        if not self.store:
            return StoreTarget("", self.resolve())
        self.show_certificates()
        require_listening(
            (self.store,),
            "--store",
            f"No store is reachable at {self.store}: list the stores with `baton status`.",
        )
        return StoreTarget(self.store, None)


@dataclass(frozen=True)
class FrontendOptions:
    """Which frontend to use."""

    address: Annotated[
        str,
        typer.Option(
            help="gRPC host:port of a frontend, or dns:///NAME:PORT of several. "
            "Default: the cluster on this machine.",
            envvar="BATON_ADDRESS",
        ),
    ] = ""
    cluster: LocalName = ""
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS to the frontend.")] = False
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            help="Authority that signed the frontend's certificate, in PEM. Implies --tls. "
            "Default: gRPC's root certificates.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None

    def credentials(self) -> "grpc.ChannelCredentials | None":
        """Return the TLS credentials of a frontend's client; None: plain text."""
        if not self.tls and self.tls_ca is None:
            return None
        import grpc

        roots = self.tls_ca.read_bytes() if self.tls_ca is not None else None
        return grpc.ssl_channel_credentials(roots)

    def resolve(self) -> str:
        """Return the frontend's address.

        Raises:
            CommandError: nothing listens there, or the choice of a cluster is ambiguous.
        """
        import os

        from baton.cli.cluster.local.files.local_clusters import find_local

        if self.address and self.cluster:
            raise CommandError(
                "--address (BATON_ADDRESS) and --cluster name two frontends: set only one of them."
            )
        local = None if self.address else find_local(self.cluster)
        default = f"127.0.0.1:{os.environ.get('BATON_GRPC_PORT', '50051')}"
        address = self.address or (local.grpc if local else default)
        require_listening(
            (address,),
            "--address",
            f"No frontend is reachable at {address}: start a cluster with `baton up`, or set "
            "--address or BATON_ADDRESS.",
        )
        return address


@dataclass(frozen=True)
class ChatCommandOptions(FrontendOptions):
    """A conversation: with which frontend and model, and how it is sampled."""

    model: Annotated[str, typer.Option(help="Model name. Default: the only one.")] = ""
    adapter: Annotated[str, typer.Option(help="Adapter of the model.")] = ""
    system: Annotated[str, typer.Option(help="System prompt.")] = ""
    max_tokens: Annotated[int, typer.Option(help="Maximum output tokens.")] = 256
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature, 0 to 2.")] = None
    seed: Annotated[int | None, typer.Option(help="Sampling seed.")] = None
    timeout: Annotated[float, typer.Option(help="Request timeout in seconds.")] = 300.0
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


_ETCD_HOSTS = (
    *("localhost", "127.0.0.1", "etcd"),
    # One by one: gRPC supports no wildcard right before the last part of a name.
    *("etcd-0.etcd", "etcd-1.etcd", "etcd-2.etcd"),
    *("*.etcd.baton.svc", "*.etcd.baton.svc.cluster.local"),
)


@dataclass(frozen=True)
class CertsOptions:
    """What `baton certs` makes, and which step of replacing an authority it takes."""

    directory: Annotated[
        Path,
        typer.Argument(
            help="Output directory, also of the authority's private key.", file_okay=False
        ),
    ]
    new_ca: Annotated[
        bool,
        typer.Option("--new-ca", help="Only add a new trusted authority."),
    ] = False
    drop_old_cas: Annotated[
        bool,
        typer.Option(
            "--drop-old-cas", help="Only remove all trusted authorities except the newest."
        ),
    ] = False
    days: Annotated[float, typer.Option(help="Lifetime of certificates in days.", min=0.01)] = 365
    trust_domain: Annotated[
        str,
        typer.Option(
            help="Trust domain of the roles in certificates.", envvar="BATON_TLS_TRUST_DOMAIN"
        ),
    ] = "baton"
    etcd_hosts: Annotated[
        str, typer.Option(help="DNS names and addresses of etcd, separated by commas.")
    ] = ",".join(_ETCD_HOSTS)
