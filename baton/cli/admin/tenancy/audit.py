"""Implementation of `baton audit`: lists the audit records of tenants."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from baton.cli.admin.target import Target
from baton.cli.admin.tenancy.commands import minute
from baton.cli.shared.table import TextTable
from baton.cluster.etcd.client import Etcd
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.audit import CLUSTER, PAGE, AuditLog, AuditRecord
from baton.tenancy.records.store import not_found

_OPERATOR = "operator"
_TOLD = {"id", "project", "tenant", "created_seconds"}
"""Fields that are shown in other columns."""


def list_changes(target: Target, tenant: str, events: Sequence[str], limit: int) -> None:
    """Print changes, the newest first.

    Args:
        target: the cluster, and how to print.
        tenant: only its changes, or CLUSTER; empty: those of all tenants and of the cluster.
        events: only of these kinds, `api_key.created`, or of all that begin so, `api_key`; none:
            all.
        limit: the most that are printed.
    """
    found = target.read(lambda etcd: _changes(etcd, target.cluster, tenant, events, limit))
    table = TextTable(("time", "tenant", "event", "resource", "project", "by", "change"))
    for owner, record in found:
        table.add(
            minute(record.at_seconds),
            owner,
            record.event,
            record.resource,
            record.project_name,
            record.actor.key or _OPERATOR,
            _change(record),
        )
    target.list(table, [{"tenant": owner, **msgspec.to_builtins(one)} for owner, one in found])


async def _changes(
    etcd: Etcd, cluster: str, tenant: str, events: Sequence[str], limit: int
) -> list[tuple[str, AuditRecord]]:
    """Return the changes, each with its tenant."""
    tenants = [CLUSTER, *(one.id for one in await Administration(etcd, cluster).tenants())]
    if tenant and tenant not in tenants:
        raise not_found(f"tenant {tenant!r} does not exist: list tenants with `baton tenants ls`")
    log, found = AuditLog(etcd, cluster), []
    for owner in [tenant] if tenant else tenants:
        number = 0
        async with aclosing(_records(log, owner, events)) as records:
            async for record in records:
                found.append((owner, record))
                number += 1
                if number == limit:
                    break
    return sorted(found, key=lambda pair: pair[1].at_seconds, reverse=True)[:limit]


async def _records(
    log: AuditLog, tenant: str, events: Sequence[str]
) -> AsyncGenerator[AuditRecord, None]:
    """Yield the matching changes of a tenant, newest first."""
    before = ""
    while True:
        records = await log.page(tenant, before)
        for record in records:
            kind = record.event.partition(".")[0]
            if not events or record.event in events or kind in events:
                yield record
        if len(records) < PAGE:
            return
        before = records[-1].id


def _change(record: AuditRecord) -> str:
    """Return the changed fields, as one text."""
    told: list[str] = []
    for name, new in record.after.items():
        if name in _TOLD:
            continue
        old = record.before.get(name)
        told.append(f"{name}={new}" if old is None else f"{name}={old}→{new}")
    told += [
        f"{name}={old}→none" for name, old in record.before.items() if name not in record.after
    ]
    return " ".join(told)
