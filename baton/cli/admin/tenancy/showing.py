"""Implementation of `baton tenants show`: a record, and what the tenant has stored."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from baton.cli.admin.db.commands import settings_of
from baton.cli.admin.target import Target
from baton.cli.admin.tenancy.budgets import budget_of, shown_with
from baton.cli.admin.tenancy.commands import limits_text
from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable
from baton.conversations.storage.records import StorageUse
from baton.conversations.storage.storage import TenantStorage
from baton.errors import BatonError
from baton.postgres.connecting import StateError, place
from baton.postgres.database import Database
from baton.postgres.revisions import CONVERSATIONS
from baton.settings import StateSettings
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.spending import Spent
from baton.tenancy.records.store import not_found
from baton.tenancy.records.tenants import Tenant


def show_tenant(target: Target, name: str, url: str, config: Path | None) -> None:
    """Print a tenant.

    Raises:
        CommandError: there is none, etcd does not respond, or a database that is configured does
            not.
    """

    async def read(admin: Administration) -> tuple[Tenant, dict[str, Spent]]:
        for one in await admin.tenants():
            if one.id == name:
                return one, await admin.spending.all(Subject.TENANT)
        raise not_found(f"tenant {name!r} does not exist: list tenants with `baton tenants ls`")

    tenant, spending = target.do(read)
    used, unknown = None, "unknown"
    try:
        settings = settings_of(url, config, target.cluster)
    except CommandError as error:
        if url:
            raise
        unknown += f": {error}"
    else:
        used = _use(settings, name)
        if used is None:
            unknown += f": {place(settings)} does not count it yet; run `baton db upgrade`"
    table = TextTable(("tenant", name))
    rows: Sequence[tuple[str, str]] = (
        ("tier", tenant.tier.value),
        ("state", "disabled" if tenant.disabled_seconds else "ok"),
        ("weight", str(tenant.weight or 1)),
        ("KV per tier", size(tenant.kv_bytes) if tenant.kv_bytes else "its share"),
        ("limits", limits_text(tenant)),
        ("spent, dollars", budget_of(tenant, spending)),
        (
            "stored conversations",
            _of(unknown if used is None else str(used.conversations), tenant.stored_conversations),
        ),
        (
            "stored bytes",
            _of(unknown if used is None else str(used.bytes), tenant.stored_bytes),
        ),
    )
    for row in rows:
        table.add(*row)
    stored = None if used is None else used._asdict()
    if target.as_json:
        target.print("", **shown_with(tenant, spending), stored=stored)
    else:
        target.list(table, ())


def _of(used: str, most: int) -> str:
    return f"{used} of {most}" if most else used


def _use(settings: StateSettings, tenant: str) -> StorageUse | None:
    async def read() -> StorageUse | None:
        async with Database(settings, "storage", CONVERSATIONS) as database:
            await database.wait_available(settings.connect_seconds)
            return await TenantStorage(database).use(tenant)

    try:
        return asyncio.run(read())
    except (BatonError, StateError) as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
