"""The clusters that `baton up` and `baton demo` run on this machine, as other commands find them.

Each run publishes a record in its run directory, `cluster.json`, and holds a lock there for as long
as it lives. The record is JSON; unknown fields, of a newer release, are ignored.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.host.file_locks import is_locked

LOCK = "lock"
RUN_PREFIX = "run-"
_RECORD = "cluster.json"


class LocalCluster(msgspec.Struct, frozen=True):
    """How to reach a cluster that runs on this machine."""

    etcd: tuple[str, ...]
    """`host:port` of each endpoint of its etcd."""
    cluster: str
    """Name of the cluster."""
    grpc: str
    """`host:port` of a frontend's gRPC API."""
    http: str
    """`host:port` of a frontend's OpenAI API."""
    state_url: str = ""
    """URL of its own Postgres; empty: it runs none."""
    demo: bool = False
    """Whether `baton demo` runs it: it stops by itself, and commands use it only by name."""
    control: str = ""
    """Socket that takes changes of its models; empty: a release that takes none runs it."""

    def write(self, run: Path) -> None:
        """Write the record into a run directory, atomically."""
        draft = run / f"{_RECORD}.new"
        draft.write_bytes(msgspec.json.encode(self))
        draft.rename(run / _RECORD)

    def __str__(self) -> str:
        return f"{self.cluster} (OpenAI {self.http}, gRPC {self.grpc}, etcd {','.join(self.etcd)})"


def running_clusters(base: Path | None = None) -> list[LocalCluster]:
    """Return the clusters that this user runs on this machine, by name, then by address.

    Args:
        base: where run directories are; None: `base_directory()`.

    Raises:
        CommandError: the record of one of them cannot be read.
    """
    directory = base or base_directory()
    runs = directory.glob(f"{RUN_PREFIX}*") if directory.is_dir() else ()
    found = [record for run in runs if (record := _read(run)) is not None]
    return sorted(found, key=lambda one: (one.cluster, one.grpc))


def find_local(name: str) -> LocalCluster | None:
    """Return the cluster of this name that runs here; without a name, the only one that runs here.

    None: no cluster runs here. Clusters of `baton demo` are found only by name.

    Raises:
        CommandError: only others run here, or the choice is ambiguous.
    """
    running = running_clusters()
    if name:
        found = [one for one in running if one.cluster == name]
        if running and not found:
            raise CommandError(
                f"Cluster {name!r} does not run on this machine. Name one that does, or set its "
                "etcd with "
                "--etcd-endpoint or BATON_ETCD_ENDPOINTS. Clusters on this machine:"
                f"{_listed(running)}"
            )
    else:
        found = [one for one in running if not one.demo]
    if len(found) > 1:
        say = "Set the etcd of one with --etcd-endpoint." if name else "Name one with --cluster."
        raise CommandError(f"Several clusters run on this machine. {say}{_listed(found)}")
    return found[0] if found else None


def local_record(endpoints: tuple[str, ...], name: str) -> LocalCluster | None:
    """Return the record of a cluster that the operator named; None: it does not run here."""
    for one in running_clusters():
        if one.cluster == name and set(one.etcd) & set(endpoints):
            return one
    return None


def _listed(clusters: Iterable[LocalCluster]) -> str:
    """Return clusters as listed in an error: a line each."""
    return "".join(f"\n  {one}" for one in clusters)


def base_directory() -> Path:
    """Return `$XDG_RUNTIME_DIR/baton`, or a directory for this user in the temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "baton"
    return Path(tempfile.gettempdir()) / f"baton-{os.getuid()}"


def _read(run: Path) -> LocalCluster | None:
    path = run / _RECORD
    try:
        if not is_locked(run / LOCK):
            return None
        return msgspec.json.decode(path.read_bytes(), type=LocalCluster)
    except FileNotFoundError:  # not published yet, or the run just ended
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise CommandError(
            f"{path} cannot be read ({error}), so its cluster is unknown: use the release of "
            "Baton that started the cluster, or stop it.",
            EXIT_FAILED,
        ) from error
