"""Implementation of `baton tenants`, `projects` and `keys`: each changes or lists records in etcd,
and prints text or JSON."""

import re
import time
from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from baton.cli.admin.target import Target
from baton.cli.admin.tenancy.budgets import budget_of, shown_with
from baton.cli.shared.errors import CommandError
from baton.cli.shared.render import size
from baton.cli.shared.table import TextTable
from baton.cluster.tenants import DEFAULT_TENANT
from baton.settings.values import Bytes
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import AMOUNTS, Subject
from baton.tenancy.records.audit import shown
from baton.tenancy.records.spending import Spent
from baton.tenancy.records.tenants import Key, Project, Tenant, Tier

_DURATION = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_bytes = TypeAdapter[int](Bytes)


def create_tenant(
    target: Target, name: str, tier: str, kv_bytes: str, weight: int, limits: dict[str, int]
) -> None:
    """Create a tenant."""
    most = read_bytes(kv_bytes)
    made = target.do(
        lambda admin: admin.create_tenant(name, Tier(tier), most, weight=weight, **limits)
    )
    target.print(f"Created tenant {name}, tier {tier}, with project default.", **shown(made))


def set_tenant(
    target: Target,
    name: str,
    tier: str | None,
    kv_bytes: str | None,
    weight: int | None,
    limits: dict[str, int],
) -> None:
    """Change a tenant."""
    changes: dict[str, Any] = dict(limits)
    if tier is not None:
        changes["tier"] = tier
    if kv_bytes is not None:
        changes["kv_bytes"] = read_bytes(kv_bytes)
    if weight is not None:
        changes["weight"] = weight
    if not changes:
        raise CommandError("Nothing to change: set --tier, --kv-bytes, --weight or a limit.")
    changed = target.do(lambda admin: admin.update_tenant(name, **changes))
    target.print(f"Changed tenant {name}.", **shown(changed))


def disable_tenant(target: Target, name: str, *, disabled: bool) -> None:
    """Disable a tenant, which rejects its keys, or enable it again."""
    changed = target.do(lambda admin: admin.update_tenant(name, disabled=disabled))
    target.print(f"{'Disabled' if disabled else 'Enabled'} tenant {name}.", **shown(changed))


def list_tenants(target: Target) -> None:
    """Print all tenants."""

    async def read(admin: Administration) -> tuple[list[Tenant], dict[str, Spent]]:
        return await admin.tenants(), await admin.spending.all(Subject.TENANT)

    tenants, spending = target.do(read)
    table = TextTable(
        ("tenant", "tier", "weight", "KV per tier", "limits", "spent, dollars", "state"),
        right=frozenset({"weight", "KV per tier"}),
    )
    for one in tenants:
        quota = size(one.kv_bytes) if one.kv_bytes else "its share"
        state = "disabled" if one.disabled_seconds else "ok"
        budget = budget_of(one, spending)
        weight = str(one.weight or 1)
        table.add(one.id, one.tier.value, weight, quota, limits_text(one), budget, state)
    target.list(table, [shown_with(one, spending) for one in tenants])


def create_project(target: Target, tenant: str, name: str, limits: dict[str, int]) -> None:
    """Create a project."""
    made = target.do(lambda admin: admin.create_project(tenant, name, **limits))
    target.print(f"Created project {name} of tenant {tenant}: {made.id}.", **shown(made))


def set_project(target: Target, tenant: str, name: str, limits: dict[str, int]) -> None:
    """Change the limits of a project."""
    _require_limits(limits)
    changed = target.do(lambda admin: admin.update_project(tenant, name, **limits))
    target.print(f"Changed project {changed.name} of tenant {tenant}.", **shown(changed))


def archive_project(target: Target, tenant: str, name: str) -> None:
    """Archive a project."""
    changed = target.do(lambda admin: admin.archive_project(tenant, name))
    target.print(f"Archived project {changed.name} of tenant {tenant}.", **shown(changed))


def list_projects(target: Target, tenant: str) -> None:
    """Print the projects of a tenant, or all."""

    async def read(admin: Administration) -> tuple[list[Project], dict[str, Spent]]:
        return await admin.projects(tenant), await admin.spending.all(Subject.PROJECT)

    projects, spending = target.do(read)
    table = TextTable(("project", "tenant", "id", "limits", "spent, dollars", "state"))
    for one in projects:
        state = "archived" if one.archived_seconds else "ok"
        budget = budget_of(one, spending)
        table.add(one.name, one.tenant, one.id, limits_text(one), budget, state)
    target.list(table, [shown_with(one, spending) for one in projects])


def create_key(
    target: Target,
    tenant: str,
    project: str,
    scopes: Sequence[str],
    *,
    name: str,
    models: Sequence[str],
    expires: str,
    limits: dict[str, int],
) -> None:
    """Create a key and print its secret."""
    seconds = read_seconds("--expires", expires) if expires else 0

    async def create(admin: Administration) -> tuple[Key, str]:
        if tenant == DEFAULT_TENANT:
            await ensure_default_tenant(admin)
        found = await admin.find_project(tenant, project)
        return await admin.create_key(
            found,
            scopes,
            name=name,
            models=models,
            expires_in_seconds=seconds,
            service_account="",
            **limits,
        )

    key, secret = target.do(create)
    _print_secret(target, key, secret)


async def ensure_default_tenant(admin: Administration) -> None:
    """Create the tenant `default`, the operator's own, if it does not exist."""
    if not any(one.id == DEFAULT_TENANT for one in await admin.tenants()):
        await admin.create_tenant(DEFAULT_TENANT, Tier.ENTERPRISE)


def set_key(target: Target, ident: str, limits: dict[str, int]) -> None:
    """Change the limits of a key."""
    _require_limits(limits)
    changed = target.do(lambda admin: admin.update_key(ident, **limits))
    target.print(f"Changed key {ident}.", **shown(changed))


def rotate_key(target: Target, ident: str, keep: str) -> None:
    """Replace the secret of a key and print the new one."""
    seconds = 0 if keep == "0" else read_seconds("--keep", keep)
    key, secret = target.do(lambda admin: admin.rotate_key(ident, seconds))
    _print_secret(target, key, secret)


def revoke_key(target: Target, ident: str) -> None:
    """Revoke a key."""
    changed = target.do(lambda admin: admin.revoke_key(ident))
    target.print(f"Revoked key {ident}.", **shown(changed))


def list_keys(target: Target, tenant: str) -> None:
    """Print the keys of a tenant, or all."""

    async def read(
        admin: Administration,
    ) -> tuple[list[Key], dict[str, Project], dict[str, int], dict[str, Spent]]:
        projects = {one.id: one for one in await admin.projects(tenant)}
        spending = await admin.spending.all(Subject.KEY)
        return await admin.keys(), projects, await admin.last_uses(), spending

    keys, projects, uses, spending = target.do(read)
    keys = [one for one in keys if one.project in projects or not tenant]
    table = TextTable(
        (
            *("key", "tenant", "project", "name", "scopes", "models"),
            *("limits", "spent, dollars", "last used", "state"),
        )
    )
    rows = []
    for one in keys:
        project = projects.get(one.project)
        owner = project.tenant if project else "?"
        table.add(
            one.id,
            owner,
            project.name if project else one.project,
            one.name,
            ", ".join(one.scopes),
            ", ".join(one.models) or "all",
            limits_text(one),
            budget_of(one, spending),
            minute(uses[one.id]) if one.id in uses else "never",
            _state(one),
        )
        rows.append(
            {
                **shown_with(one, spending),
                "tenant": owner,
                "last_used_seconds": uses.get(one.id),
                "state": _state(one),
            }
        )
    target.list(table, rows)


def read_bytes(text: str, flag: str = "--kv-bytes") -> int:
    """Return the number of bytes of an option.

    Raises:
        CommandError: the text is not a size.
    """
    try:
        return _bytes.validate_python(text)
    except ValidationError:
        raise CommandError(f"{flag} {text!r} is not a size in bytes, for example 1GiB.") from None


def read_seconds(flag: str, text: str) -> int:
    """Return a duration in seconds.

    Raises:
        CommandError: the text is not a duration.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise CommandError(f"{flag} {text!r} is not a duration, for example 30d, 12h, 90m or 60s.")
    return int(found[1]) * _SECONDS[found[2]]


def _print_secret(target: Target, key: Key, secret: str) -> None:
    if not target.as_json:
        target.say(f"Key {key.id} of cluster {target.cluster}, shown once:")
        target.say(f"  {secret}")
        if key.old_secret is not None:
            target.say(f"The old secret is valid until {minute(key.old_secret.until_seconds)}.")
        return
    target.print("", **shown(key), secret=secret)


def _require_limits(limits: dict[str, int]) -> None:
    if not limits:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in AMOUNTS)
        flags += ", --budget-per-month"
        raise CommandError(f"Nothing to change: set at least one of {flags}.")


def limits_text(record: Tenant | Project | Key) -> str:
    """Return the limits of a record, as text."""
    found = ((getattr(record, name), name.replace("_", " ")) for name in AMOUNTS)
    return ", ".join(f"{amount} {name}" for amount, name in found if amount) or "none"


def _state(key: Key) -> str:
    if key.revoked_seconds:
        return "revoked"
    if key.expires_seconds:
        over = time.time() >= key.expires_seconds
        return f"{'expired' if over else 'until'} {minute(key.expires_seconds)}"
    return "ok"


def minute(seconds: int) -> str:
    """Return a time, in seconds since the Unix epoch, as text."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
