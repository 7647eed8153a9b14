"""The cluster of a command: its name and the etcd that lists its processes, from one source.

Values from options or environment variables are used as given. If only one of the two is given,
the other is looked up from it: the etcd of the local cluster with that name, or the only cluster
registered in that etcd. If neither is given, the cluster that runs on this machine is used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from baton.cli.cluster.local.files.local_clusters import LocalCluster, find_local
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.reach import certificate_hint, require_listening
from baton.cluster import keys
from baton.cluster.registry import process_counts

if TYPE_CHECKING:
    from baton.cluster.etcd.client import Etcd

T = TypeVar("T")

DEFAULT_ETCD = "127.0.0.1:2379"
_SAY = "Name one with --cluster."


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of a cluster."""

    endpoints: tuple[str, ...]
    """`host:port` of each endpoint of etcd."""
    name: str
    local: LocalCluster | None = None
    """Record of the cluster, if `baton up` runs it on this machine."""


def find_cluster(endpoints: tuple[str, ...], name: str, default: str = "") -> ClusterAddress:
    """Return the selected cluster.

    Args:
        endpoints: of etcd, as the operator named them; empty: not named.
        name: of the cluster, likewise.
        default: name of the cluster if etcd has records of none; empty: this is an error.

    Raises:
        CommandError: there is no such cluster, the choice is ambiguous, or etcd does not respond.
    """
    if endpoints:
        _require_etcd(endpoints)
        return ClusterAddress(endpoints, name or _registered_name(endpoints, default))
    local = find_local(name)
    if local is not None:
        _require_etcd(local.etcd)
        return ClusterAddress(local.etcd, local.cluster, local)
    local_etcd = (DEFAULT_ETCD,)
    _require_etcd(local_etcd)
    return ClusterAddress(local_etcd, name or _registered_name(local_etcd, default))


def require_registered(address: ClusterAddress) -> None:
    """Check that a process of the cluster is registered, so that a change takes effect somewhere.

    Raises:
        CommandError: none is, or etcd does not respond.
    """
    if ask(address.endpoints, lambda etcd: etcd.count(keys.instances(address.name))):
        return
    found = ask(address.endpoints, process_counts)
    at = ", ".join(address.endpoints)
    running = sorted(name for name, processes in found.items() if processes)
    there = f"Clusters registered there: {', '.join(running)}. " if running else ""
    raise CommandError(
        f"No process of cluster {address.name!r} is registered in etcd at {at}, so the change "
        f"would have no effect. {there}Name another cluster with --cluster, or set "
        "--before-start to change the records of a cluster that has not started yet."
    )


def _registered_name(endpoints: Sequence[str], default: str) -> str:
    """Return the name of the cluster that is registered in an etcd.

    A cluster with processes takes precedence over clusters that only have records.

    Raises:
        CommandError: none is, or several are.
    """
    found = ask(endpoints, process_counts)
    names = [name for name, processes in found.items() if processes] or list(found)
    at = ", ".join(endpoints)
    if not names and default:
        return default
    if not names:
        raise CommandError(f"No cluster is registered in etcd at {at}. {_SAY}", EXIT_FAILED)
    if len(names) > 1:
        raise CommandError(
            f"Several clusters are registered in etcd at {at}: {', '.join(sorted(names))}. {_SAY}"
        )
    return names[0]


def ask(endpoints: Sequence[str], question: "Callable[[Etcd], Awaitable[T]]") -> T:
    """Query an etcd; return the result.

    Raises:
        CommandError: it does not respond.
    """
    from baton.cluster.etcd import certificate
    from baton.cluster.etcd.client import Etcd, EtcdError, NoSpaceError

    async def read() -> T:
        async with Etcd(tuple(endpoints), certificate=certificate.current()) as etcd:
            return await question(etcd)

    try:
        return asyncio.run(read())
    except NoSpaceError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    except EtcdError as error:
        raise CommandError(
            f"etcd is unreachable at {', '.join(endpoints)}: {error}. {certificate_hint()}",
            EXIT_FAILED,
        ) from error


def _require_etcd(endpoints: tuple[str, ...]) -> None:
    require_listening(
        endpoints,
        "--etcd-endpoint",
        f"No cluster runs on this machine, and etcd is unreachable at {', '.join(endpoints)}. "
        "Start "
        "a cluster with `baton up`, or set --etcd-endpoint or BATON_ETCD_ENDPOINTS.",
    )
