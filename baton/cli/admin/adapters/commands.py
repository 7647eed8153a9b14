"""Implementation of `baton adapters`: changes or lists the records of adapters."""

from pathlib import Path
from typing import Any

import msgspec

from baton.cli.admin.target import Target
from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable
from baton.cluster.etcd.client import Etcd
from baton.models.adapters.register import register
from baton.tenancy.admin.adapters import AdapterAdministration
from baton.tenancy.records.adapters import AdapterRecord

_SHOWN_DIGITS = 12


def add_adapter(target: Target, name: str, base: str, location: str, *, replace: bool) -> None:
    """Register an adapter; a relative location is one of this directory."""
    where = location if "://" in location else str(Path.cwd() / location)

    async def add(etcd: Etcd) -> AdapterRecord:
        admin = AdapterAdministration(etcd, target.cluster)
        return await register(admin, name, base, where, replace=replace)

    record = target.read(add)
    target.print(
        f"Registered {name}, an adapter of {base} of rank {record.rank}, {size(record.bytes)}, "
        f"digest {record.digest[:_SHOWN_DIGITS]}.",
        **_fields(record),
    )


def remove_adapter(target: Target, name: str) -> None:
    """Remove an adapter."""
    target.read(lambda etcd: AdapterAdministration(etcd, target.cluster).remove(name))
    target.print(f"Removed the adapter {name}.", adapter=name)


def list_adapters(target: Target) -> None:
    """Print the adapters."""

    async def read(etcd: Etcd) -> tuple[list[AdapterRecord], dict[tuple[str, str], int]]:
        admin = AdapterAdministration(etcd, target.cluster)
        return await admin.adapters(), await admin.serving()

    found, serving = target.read(read)
    table = TextTable(("adapter", "base", "rank", "size", "digest", "workers", "location"))
    rows = []
    for one in found:
        workers = serving.get((one.id, one.digest), 0)
        digest = one.digest[:_SHOWN_DIGITS]
        table.add(
            *(one.id, one.base, str(one.rank), size(one.bytes)),
            *(digest, str(workers), one.location),
        )
        rows.append({**_fields(one), "workers": workers})
    target.list(table, rows)


def _fields(record: AdapterRecord) -> dict[str, Any]:
    return {"adapter": record.id, **msgspec.to_builtins(record)}
