"""The commands of `baton models`, as the command line has them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from baton.cli.models.options import PullOptions
from baton.cli.shared.options import EtcdOptions, FrontendOptions, expand_options, list_command

if TYPE_CHECKING:
    from rich.console import Console

models_app = typer.Typer(invoke_without_command=True)
ModelName = Annotated[str, typer.Argument(help="Name of the model.", show_default=False)]


@models_app.callback()
@expand_options
def models(
    context: typer.Context,
    options: FrontendOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models of a cluster, or download models for it."""
    if context.invoked_subcommand is not None:
        return
    address = options.resolve()
    from baton.cli.chat import models as run

    run(address, options, _console(), json)


@list_command(models_app)
@expand_options
def ls(
    options: FrontendOptions,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models of a cluster."""
    address = options.resolve()
    from baton.cli.chat import models as run

    run(address, options, _console(), json)


@models_app.command("add")
@expand_options
def add(
    options: EtcdOptions,
    model: Annotated[
        str,
        typer.Argument(
            metavar="PATH[:OPTION=VALUE,...]", help="As --model of `baton up`.", show_default=False
        ),
    ],
) -> None:
    """Start the workers of one more model in a local cluster."""
    from baton.cli.models.changes import add as run

    run(options.resolve(), model, _console())


@models_app.command("set")
@expand_options
def set_(
    options: EtcdOptions,
    name: ModelName,
    counts: Annotated[
        list[str],
        typer.Argument(metavar="ROLE=NUMBER...", help="prefill, decode or combined workers."),
    ],
) -> None:
    """Give a model of a local cluster other numbers of workers."""
    from baton.cli.models.changes import set_workers as run

    run(options.resolve(), name, counts, _console())


@models_app.command("remove")
@expand_options
def remove(
    options: EtcdOptions,
    name: ModelName,
    wait: Annotated[
        float, typer.Option(help="Seconds for its running requests to end.", min=0, max=3600)
    ] = 30.0,
) -> None:
    """Drain the workers of a model of a local cluster."""
    from baton.cli.models.changes import remove as run

    run(options.resolve(), name, wait, _console())


@models_app.command("pull")
@expand_options
def pull(options: PullOptions) -> None:
    """Download a model, or continue its download.

    Every file is checked by the digest that the source gives. The
    directory appears once all files are there. Tokens are read from
    files and variables only.
    """
    from baton.cli.models.pull import pull as run

    run(options, _console(), _console(stderr=True))


@models_app.command("verify")
def verify(
    directory: Annotated[Path, typer.Argument(help="Directory of a model.", show_default=False)],
) -> None:
    """Check that a model is complete, and every file's digest.

    The exit code is 1 if it is not.
    """
    from baton.cli.models.verify import verify as run

    run(directory, _console())


@models_app.command("overlay")
def overlay(
    name: Annotated[
        str,
        typer.Argument(help="Name of the pool: its label, and its objects' suffix."),
    ],
    source: Annotated[
        str,
        typer.Argument(
            help="hf://, s3:// or https:// as for `baton models pull`, pvc://CLAIM/PATH, or "
            "oci://IMAGE."
        ),
    ],
    directory: Annotated[Path, typer.Argument(help="Output directory.")],
    served_name: Annotated[
        str, typer.Option(help="Model name in requests. Default: the source's last part.")
    ] = "",
    cache: Annotated[
        Literal["pod", "node", "claim", "job"],
        typer.Option(
            help="Where a download goes: a volume per pod, per node, of all pods, or of a Job."
        ),
    ] = "pod",
    component: Annotated[
        list[str] | None,
        typer.Option(help="Further component of the pool, such as vllm or autoscaling."),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the cluster.")] = "baton",
    manifests: Annotated[
        Path | None,
        typer.Option(help="Directory k8s of Baton. Default: the nearest above DIRECTORY."),
    ] = None,
) -> None:
    """Write the Kubernetes manifests of one more model.

    The model has workers, scalers and a ConfigMap of its own, next to
    those of the base, and the label baton.dev/model.
    """
    from baton.cli.models.overlay import overlay as run

    run(
        name, source, directory, served_name, cache, component or (), namespace, manifests,
        _console(),
    )  # fmt: skip


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, soft_wrap=not stream.isatty())
