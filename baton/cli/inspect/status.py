"""`baton status`: the instances of a cluster, their health and load."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.text import Text

from baton.cli.shared.cluster_address import ClusterAddress
from baton.cli.shared.cluster_view import (
    HEALTH_SECONDS,
    UNREACHABLE,
    health,
    role_name,
    watch_cluster,
)
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.reach import certificate_hint
from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable, show
from baton.cluster.etcd.client import NO_SPACE
from baton.cluster.members.membership import health_address
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, kvstore_pb2, worker_pb2
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.internal.v1.worker_pb2_grpc import WorkerServiceStub
from baton.rpc.channel.call import ClientCall
from baton.rpc.channel.channel import Channel
from baton.rpc.channel.pool import ChannelPool
from baton.telemetry import logs

WORKERS = (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)

UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """Load of a worker."""

    running: int
    waiting: int
    used_pages: int
    total_pages: int


@dataclass(frozen=True, slots=True)
class StoreLoad:
    """Content of a store."""

    used_bytes: int
    capacity_bytes: int
    objects: int
    leases: int


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One instance. `--json` prints its fields."""

    id: str
    role: str
    model: str
    address: str
    metrics_address: str
    health: str
    version: str
    """Release and commit of its code; UNKNOWN: older than releases that report it."""
    load: WorkerLoad | StoreLoad | None = None
    """None: it has none to report, or did not report it."""
    operators: str | None = None
    """Operators of a torch engine: the instruction set of its compiled operators, or why it uses
    plain torch. For a router: its compiled libraries, or why it has none. None: neither, or not
    reported."""
    denial: str = ""
    """Why it rejected the query, if the command's certificate is for another role."""

    def cells(self) -> tuple[str, str]:
        """Return its load and its KV as text."""
        match self.load:
            case WorkerLoad(running, waiting, used, total):
                return f"{running} run, {waiting} wait", f"{used}/{total} pages"
            case StoreLoad(used, capacity, objects, _):
                return f"{objects} objects", f"{size(used)}/{size(capacity)}"
        silent = self.role not in ("frontend", "router") and self.health != UNREACHABLE
        return (UNKNOWN, UNKNOWN) if silent else ("", "")


def status(cluster: ClusterAddress, console: Console, metrics: bool, as_json: bool) -> None:
    """Print the instances that etcd lists.

    Args:
        cluster: address of the cluster.
        console: to print on.
        metrics: print the metrics addresses instead of the load.
        as_json: print JSON.

    Raises:
        CommandError: etcd does not respond, no instance does, or some reject queries with this
            certificate.
    """
    logs.configure("status", "status", level="error")
    rows, alarms = asyncio.run(_rows(cluster.endpoints, cluster.name))
    _print(rows, cluster, console, metrics, as_json)
    for alarm in () if as_json else alarms:
        console.print(alarm_line(alarm), style="red", soft_wrap=True, highlight=False)
    if rows and all(row.health == UNREACHABLE for row in rows):
        raise CommandError(f"no process is reachable. {certificate_hint()}", EXIT_FAILED)
    if denials := [row.denial for row in rows if row.denial]:
        raise CommandError(f"only operators can read the load: {denials[0]}.", EXIT_FAILED)


def _print(
    rows: Sequence[StatusRow],
    cluster: ClusterAddress,
    console: Console,
    metrics: bool,
    as_json: bool,
) -> None:
    if as_json:
        console.print_json(json.dumps([asdict(row) for row in rows]))
    elif not rows:
        at = ", ".join(cluster.endpoints)
        console.print(
            f"Cluster {cluster.name!r} has no instances in etcd at {at}.", highlight=False
        )
    elif metrics:
        show(console, metrics_table(rows))
    else:
        width = console.width if console.is_terminal else None
        show(console, status_table(rows, width))
        if len(versions := _versions(rows)) == 1:
            console.print(f"All instances run {versions.pop()}.", highlight=False)
        for line in compiled_lines(rows):
            console.print(line, soft_wrap=True, highlight=False, markup=False)


def status_table(rows: Sequence[StatusRow], width: int | None) -> TextTable:
    """Return the table of instances, with metrics addresses if the terminal is wide enough.

    Roles have a column only if IDs do not begin with them, versions only if they differ.
    """
    roles = not all(row.id.startswith(row.role) for row in rows)
    wide = _status_table(rows, roles, metrics=True)
    if width is None or wide.width <= width:
        return wide
    narrow = _status_table(rows, roles, metrics=False)
    # If columns do not fit in any case, all of them are shown.
    return narrow if narrow.width <= width else wide


def compiled_lines(rows: Sequence[StatusRow]) -> list[str]:
    """Return a sentence per kind of operators that workers use, with their names; then the same for
    routers' compiled libraries."""
    routers = [row for row in rows if row.role == "router"]
    workers = [row for row in rows if row.role != "router"]
    return [*_compiled_lines(workers, "All workers"), *_compiled_lines(routers, "All routers")]


def _compiled_lines(rows: Sequence[StatusRow], everyone: str) -> list[str]:
    who: dict[str, list[str]] = {}
    for row in rows:
        if row.operators is not None:
            who.setdefault(row.operators, []).append(row.id)
    one = len(who) == 1
    return [f"{everyone if one else ', '.join(ids)}: {what}." for what, ids in who.items()]


def metrics_table(rows: Sequence[StatusRow]) -> TextTable:
    """Return the table of metrics addresses."""
    table = TextTable(("instance", "role", "metrics"))
    for row in rows:
        url = f"http://{row.metrics_address}/metrics" if row.metrics_address else ""
        table.add(Text(row.id, style="bold"), row.role, url)
    return table


def _status_table(rows: Sequence[StatusRow], roles: bool, metrics: bool) -> TextTable:
    mixed = len(_versions(rows)) > 1
    middle = ("model", "address", "health", *(("version",) if mixed else ()), "load", "KV")
    table = TextTable(
        ("instance", *(("role",) if roles else ()), *middle, *(("metrics",) if metrics else ()))
    )
    for row in rows:
        table.add(
            Text(row.id, style="bold"),
            *((row.role,) if roles else ()),
            row.model,
            row.address,
            Text(row.health, style="green" if row.health == "SERVING" else "red"),
            *((row.version,) if mixed else ()),
            *row.cells(),
            *((row.metrics_address,) if metrics else ()),
        )
    return table


def _versions(rows: Sequence[StatusRow]) -> set[str]:
    return {row.version for row in rows}


def alarm_line(alarm: str) -> str:
    """Return an alarm of etcd as a sentence."""
    what = NO_SPACE if alarm == "NOSPACE" else "etcd has an alarm"
    return f"{what} (alarm {alarm}): docs/backup.md says what to do."


async def _rows(endpoints: tuple[str, ...], cluster: str) -> tuple[list[StatusRow], Sequence[str]]:
    async with watch_cluster(endpoints, cluster) as view, ChannelPool() as channels:
        if not view.synced:
            raise CommandError(
                f"etcd is unreachable at {', '.join(endpoints)}: start a cluster with `baton up`, "
                f"or set --etcd-endpoint. {certificate_hint()}",
                EXIT_FAILED,
            )
        members = sorted(view.instances.values(), key=lambda member: (member.role, member.id))
        rows = (_row(member, channels.get(health_address(member))) for member in members)
        return list(await asyncio.gather(*rows)), await view.alarms()


async def _row(member: cluster_pb2.Instance, channel: Channel) -> StatusRow:
    state = await health(channel)
    load: WorkerLoad | StoreLoad | None = None
    denial = ""
    try:
        if state != UNREACHABLE and member.role in WORKERS:
            load = await _worker(channel)
        elif state != UNREACHABLE and member.role == cluster_pb2.ROLE_KVSTORE:
            load = await _store(channel)
    except BatonError as error:
        denial = str(error) if error.reason is Reason.PERMISSION_DENIED else ""
    return StatusRow(
        member.id,
        role_name(member.role),
        member.model,
        member.address,
        member.metrics_address,
        "DRAINING" if member.draining else state,
        member.version or UNKNOWN,
        load,
        describe_operators(member),
        denial,
    )


def describe_operators(member: cluster_pb2.Instance) -> str | None:
    """Return a member's compute operators, as text; None: not reported."""
    if parts := member.compiled_parts:
        return ", ".join(
            f"{part.name} in {part.fallback} ({part.reason})"
            if part.fallback
            else f"{part.name} compiled"
            for part in parts
        )
    if not member.HasField("operators"):
        return None
    if member.operators.variant:
        why = f" ({member.operators.reason})" if member.operators.reason else ""
        return f"compiled operators for {member.operators.variant}{why}"
    return f"plain torch ({member.operators.reason})"


async def _worker(channel: Channel) -> WorkerLoad | None:
    request = worker_pb2.WatchLoadRequest()
    call: ClientCall = channel.stub(WorkerServiceStub).WatchLoad(request, timeout=HEALTH_SECONDS)
    try:
        response = await call.read()
    finally:
        call.cancel()
    if not isinstance(response, worker_pb2.WatchLoadResponse):  # ended immediately: it shuts down
        return None
    report = response.report
    used = report.total_pages - report.free_pages
    return WorkerLoad(report.running, report.waiting, used, report.total_pages)


async def _store(channel: Channel) -> StoreLoad:
    request = kvstore_pb2.StatRequest()
    stat = await channel.stub(KvStoreServiceStub).Stat(request, timeout=HEALTH_SECONDS)
    return StoreLoad(stat.committed_bytes, stat.capacity_bytes, stat.objects, stat.leases)
