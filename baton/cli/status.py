"""`baton status`: the instances of a cluster, their health and load."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from baton.cli.cluster_view import HEALTH_SECONDS, UNREACHABLE, health, watch_cluster
from baton.cli.errors import EXIT_FAILED, CommandError
from baton.cli.render import size
from baton.internal.v1 import cluster_pb2, kvstore_pb2, worker_pb2
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.internal.v1.worker_pb2_grpc import WorkerServiceStub
from baton.rpc.channels import ChannelPool
from baton.telemetry import logs

WORKERS = (cluster_pb2.ROLE_PREFILL, cluster_pb2.ROLE_DECODE, cluster_pb2.ROLE_COMBINED)

UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One instance."""

    id: str
    role: str
    model: str
    address: str
    health: str
    load: str
    kv: str


def status(endpoints: tuple[str, ...], cluster: str, console: Console) -> None:
    """Print a table of the instances that etcd lists.

    Raises:
        CommandError: etcd does not answer.
    """
    logs.configure("status", "status", level="error")
    rows = asyncio.run(_rows(endpoints, cluster))
    if not rows:
        console.print(f"Cluster {cluster!r} has no members.", highlight=False)
        return
    console.print(table(rows))


def table(rows: Sequence[StatusRow]) -> Table:
    """Return the table to print. Roles have a column only where ids do not begin with them."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    roles = not all(row.id.startswith(row.role) for row in rows)
    for name in ("instance", *(("role",) if roles else ()), "model", "address", "health", "load"):
        made.add_column(name, no_wrap=True)
    made.add_column("KV", overflow="fold")
    for row in rows:
        good = row.health == "SERVING"
        made.add_row(
            Text(row.id, style="bold"),
            *((row.role,) if roles else ()),
            Text(row.model),
            row.address,
            Text(row.health, style="green" if good else "red"),
            row.load,
            row.kv,
        )
    return made


async def _rows(endpoints: tuple[str, ...], cluster: str) -> list[StatusRow]:
    async with watch_cluster(endpoints, cluster) as view, ChannelPool() as channels:
        if not view.synced:
            raise CommandError(
                f"etcd does not answer at {', '.join(endpoints)}: start a cluster with `baton up`, "
                "or say where its etcd is with --etcd-endpoint.",
                EXIT_FAILED,
            )
        members = sorted(view.instances.values(), key=lambda member: (member.role, member.id))
        rows = (_row(member, channels.get(member.address)) for member in members)
        return list(await asyncio.gather(*rows))


async def _row(member: cluster_pb2.Instance, channel: grpc.aio.Channel) -> StatusRow:
    state = await health(channel)
    load = kv = ""
    if state != UNREACHABLE and member.role in WORKERS:
        load, kv = await _worker(channel)
    elif state != UNREACHABLE and member.role == cluster_pb2.ROLE_KVSTORE:
        kv = await _store(channel)
    if member.draining:
        state = "DRAINING"
    role = cluster_pb2.Role.Name(member.role).removeprefix("ROLE_").lower()
    return StatusRow(member.id, role, member.model, member.address, state, load, kv)


async def _worker(channel: grpc.aio.Channel) -> tuple[str, str]:
    request = worker_pb2.WatchLoadRequest()
    call: Any = WorkerServiceStub(channel).WatchLoad(request, timeout=HEALTH_SECONDS)
    try:
        response = await call.read()
    except grpc.aio.AioRpcError:
        return UNKNOWN, UNKNOWN
    finally:
        call.cancel()
    if not isinstance(response, worker_pb2.WatchLoadResponse):  # ended at once: it shuts down
        return UNKNOWN, UNKNOWN
    report = response.report
    used = report.total_pages - report.free_pages
    return (
        f"{report.running} run, {report.waiting} wait",
        f"{used}/{report.total_pages} pages",
    )


async def _store(channel: grpc.aio.Channel) -> str:
    request = kvstore_pb2.StatRequest()
    call: Any = KvStoreServiceStub(channel).Stat(request, timeout=HEALTH_SECONDS)
    try:
        stat = await call
    except grpc.aio.AioRpcError:
        return UNKNOWN
    finally:
        call.cancel()
    return (
        f"{size(stat.committed_bytes)} of {size(stat.capacity_bytes)}, {stat.objects} objects, "
        f"{stat.leases} leases"
    )
