"""`baton models add`, `set` and `remove`: changes of the models of a cluster on this machine."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from rich.console import Console

from baton.cli.cluster.local.files.local_clusters import local_record
from baton.cli.cluster.local.models.control import ModelChange, ask
from baton.cli.cluster.local.models.local_model import parse
from baton.cli.shared.cluster_address import ClusterAddress
from baton.cli.shared.errors import EXIT_FAILED, CommandError


def add(address: ClusterAddress, text: str, console: Console) -> None:
    """Add a model, as --model of `baton up` describes it.

    Raises:
        CommandError: it cannot be served, or the cluster does not run here.
    """
    given = parse(text)
    options = {name: str(value) for name, value in given if value is not None}
    options["path"] = str(given.path.absolute())
    _change(address, ModelChange("add", options=options), console)


def set_workers(
    address: ClusterAddress, name: str, counts: Sequence[str], console: Console
) -> None:
    """Give a model other numbers of workers, each as ROLE=NUMBER.

    Raises:
        CommandError: a number is invalid, or the cluster does not run here or serve the model.
    """
    options: dict[str, str] = {}
    for count in counts:
        option, equals, value = count.partition("=")
        if not equals:
            raise CommandError(f"{count!r} is not ROLE=NUMBER, such as decode=2.")
        if option in options:
            raise CommandError(f"{option} is given twice.")
        options[option] = value
    _change(address, ModelChange("set", name, options), console)


def remove(address: ClusterAddress, name: str, wait_seconds: float, console: Console) -> None:
    """Remove a model once its running requests have ended.

    Raises:
        CommandError: the cluster does not run here or serve the model, or serves no other.
    """
    _change(address, ModelChange("remove", name, wait_seconds=wait_seconds), console)


def _change(address: ClusterAddress, change: ModelChange, console: Console) -> None:
    local = address.local or local_record(address.endpoints, address.name)
    if local is None or not local.control:
        raise CommandError(
            f"No `baton up` of this release runs cluster {address.name!r} on this machine. On "
            "Kubernetes a model is a directory of the overlay: `baton models overlay` writes it, "
            "kubectl applies and deletes it (docs/models.md)."
        )

    async def run() -> None:
        async with aclosing(ask(Path(local.control), change)) as said:
            async for sentence in said:
                console.print(sentence, highlight=False, markup=False)

    try:
        asyncio.run(run())
    except OSError as error:
        raise CommandError(
            f"Cluster {address.name!r} did not make the change: it has ended ({error}).",
            EXIT_FAILED,
        ) from error
    console.print("Done: `baton status` shows the workers.", highlight=False)
