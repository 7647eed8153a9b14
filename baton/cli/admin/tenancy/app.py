"""The commands, as the command line has them."""

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from baton.cli.admin.db.app import StateUrl
from baton.cli.admin.output import Json, console
from baton.cli.shared.options import (
    ChangeOptions,
    ConfigFile,
    EtcdOptions,
    expand_options,
    list_command,
)

TenantName = Annotated[str, typer.Argument(help="Tenant name.")]
TierName = Literal["free", "pro", "enterprise"]
_WEIGHT = (
    "Weight of the tenant's share of the workers when several tenants have queued requests. 0: 1."
)


_STORED = "Most bytes of stored items, responses and completions, for example 10GiB. 0: no limit."
_CONVERSATIONS = "Most stored conversations. 0: no limit."


@dataclass(frozen=True)
class StorageOptions:
    """Limits of what a tenant stores."""

    stored_conversations: Annotated[int | None, typer.Option(help=_CONVERSATIONS)] = None
    stored_bytes: Annotated[str | None, typer.Option(help=_STORED)] = None

    def given(self) -> dict[str, int]:
        """Return the given options, by the names of records' fields."""
        found: dict[str, int] = {}
        if self.stored_conversations is not None:
            found["stored_conversations"] = self.stored_conversations
        if self.stored_bytes is not None:
            from baton.cli.admin.tenancy.commands import read_bytes

            found["stored_bytes"] = read_bytes(self.stored_bytes, "--stored-bytes")
        return found


@dataclass(frozen=True)
class LimitOptions:
    """Limits to set; 0 removes one."""

    requests_per_minute: Annotated[
        int | None, typer.Option(help="Most requests that start per minute. 0: no limit.")
    ] = None
    tokens_per_minute: Annotated[
        int | None, typer.Option(help="Most prompt and output tokens per minute. 0: no limit.")
    ] = None
    requests_at_once: Annotated[
        int | None, typer.Option(help="Most concurrent requests. 0: no limit.")
    ] = None
    context_tokens: Annotated[
        int | None,
        typer.Option(help="Most prompt and output tokens of one request. 0: the tier's limit."),
    ] = None
    budget_per_month: Annotated[
        str | None,
        typer.Option(help="Most cost per month in dollars, for example 50.00. 0: no limit."),
    ] = None

    def given(self) -> dict[str, int]:
        """Return the given options, by the names of records' fields."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        budget = found.pop("budget_per_month", None)
        if budget is not None:
            from baton.cli.admin.tenancy.budgets import read_budget

            found["budget_nanodollars_per_month"] = read_budget(budget)
        return found


tenants_app = typer.Typer(help="Manage tenants: customers or departments.", no_args_is_help=True)
projects_app = typer.Typer(
    help="Manage projects: teams or applications of a tenant.", no_args_is_help=True
)
keys_app = typer.Typer(help="Manage API keys.", no_args_is_help=True)
audit_app = typer.Typer(help="Show the audit log.", no_args_is_help=True)


@tenants_app.command("create")
@expand_options
def tenants_create(
    options: ChangeOptions,
    limits: LimitOptions,
    storage: StorageOptions,
    name: TenantName,
    tier: Annotated[TierName, typer.Option(help="Service tier.")] = "pro",
    kv_bytes: Annotated[
        str,
        typer.Option(
            help="Most KV bytes in each tier of each store, for example 1GiB. 0: no quota."
        ),
    ] = "0",
    weight: Annotated[int, typer.Option(help=_WEIGHT)] = 0,
    json: Json = False,
) -> None:
    """Create a tenant with the project `default`."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    target = reach(options, console(), json)
    given = limits.given() | storage.given()
    commands.create_tenant(target, name, tier, kv_bytes, weight, given)


@tenants_app.command("set")
@expand_options
def tenants_set(
    options: ChangeOptions,
    limits: LimitOptions,
    storage: StorageOptions,
    name: TenantName,
    tier: Annotated[TierName | None, typer.Option(help="Service tier.")] = None,
    kv_bytes: Annotated[
        str | None,
        typer.Option(
            help="Most KV bytes in each tier of each store, for example 1GiB. 0: no quota."
        ),
    ] = None,
    weight: Annotated[int | None, typer.Option(help=_WEIGHT)] = None,
    json: Json = False,
) -> None:
    """Change a tenant, effective within a second."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    target = reach(options, console(), json)
    given = limits.given() | storage.given()
    commands.set_tenant(target, name, tier, kv_bytes, weight, given)


@tenants_app.command("disable")
@expand_options
def tenants_disable(options: ChangeOptions, name: TenantName, json: Json = False) -> None:
    """Disable a tenant: reject all its keys."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.disable_tenant(reach(options, console(), json), name, disabled=True)


@tenants_app.command("enable")
@expand_options
def tenants_enable(options: ChangeOptions, name: TenantName, json: Json = False) -> None:
    """Enable a disabled tenant: accept its keys again."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.disable_tenant(reach(options, console(), json), name, disabled=False)


@tenants_app.command("show")
@expand_options
def tenants_show(
    options: EtcdOptions,
    name: TenantName,
    state_url: StateUrl = "",
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Show a tenant, its limits, and what it has stored."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import showing

    target = reach(options, console(), json)
    showing.show_tenant(target, name, state_url, config)


@list_command(tenants_app)
@expand_options
def tenants_ls(options: EtcdOptions, json: Json = False) -> None:
    """List tenants."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.list_tenants(reach(options, console(), json))


@projects_app.command("create")
@expand_options
def projects_create(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="Project name.")],
    json: Json = False,
) -> None:
    """Create a project."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    target = reach(options, console(), json)
    commands.create_project(target, tenant, name, limits.given())


@projects_app.command("set")
@expand_options
def projects_set(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="Project name or id.")],
    json: Json = False,
) -> None:
    """Change the limits of a project, effective within a second."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    target = reach(options, console(), json)
    commands.set_project(target, tenant, name, limits.given())


@projects_app.command("archive")
@expand_options
def projects_archive(
    options: ChangeOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="Project name or id.")],
    json: Json = False,
) -> None:
    """Archive a project: reject all its keys, permanently."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.archive_project(reach(options, console(), json), tenant, name)


@list_command(projects_app)
@expand_options
def projects_ls(
    options: EtcdOptions,
    tenant: Annotated[str, typer.Argument(help="Only this tenant.")] = "",
    json: Json = False,
) -> None:
    """List projects."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.list_projects(reach(options, console(), json), tenant)


@keys_app.command("create")
@expand_options
def keys_create(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName = "default",
    project: Annotated[str, typer.Option(help="The tenant's project, by name or id.")] = "default",
    name: Annotated[str, typer.Option(help="Name of the key, for people.")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="Scope: inference, usage or admin. Can be repeated. Default: inference."),
    ] = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin", help="Same as --scope admin: manage the tenant's projects and keys."
        ),
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model or adapter that the key can use. Can be repeated. Default: all."),
    ] = None,
    expires: Annotated[
        str, typer.Option(help="Lifetime, as 30d, 12h, 90m or 60s. Default: unlimited.")
    ] = "",
    json: Json = False,
) -> None:
    """Create a key and print its secret, once.

    The command creates the tenant `default` if it does not exist.
    """
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    scopes = [*(scope or ()), *(("admin",) if admin else ())] or ["inference"]
    commands.create_key(
        reach(options, console(), json),
        tenant,
        project,
        scopes,
        name=name,
        models=model or (),
        expires=expires,
        limits=limits.given(),
    )


@keys_app.command("set")
@expand_options
def keys_set(
    options: ChangeOptions,
    limits: LimitOptions,
    key: Annotated[str, typer.Argument(help="The key's id.")],
    json: Json = False,
) -> None:
    """Change the limits of a key, effective within a second."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.set_key(reach(options, console(), json), key, limits.given())


@keys_app.command("rotate")
@expand_options
def keys_rotate(
    options: ChangeOptions,
    key: Annotated[str, typer.Argument(help="The key's id.")],
    keep: Annotated[
        str, typer.Option(help="How long the old secret stays valid. 0: revoke it now.")
    ] = ("1h"),
    json: Json = False,
) -> None:
    """Create a new secret for a key and print it, once."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.rotate_key(reach(options, console(), json), key, keep)


@keys_app.command("revoke")
@expand_options
def keys_revoke(
    options: ChangeOptions,
    key: Annotated[str, typer.Argument(help="The key's id.")],
    json: Json = False,
) -> None:
    """Revoke a key, permanently, effective within a second."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.revoke_key(reach(options, console(), json), key)


@list_command(keys_app)
@expand_options
def keys_ls(
    options: EtcdOptions,
    tenant: Annotated[str, typer.Argument(help="Only this tenant.")] = "",
    json: Json = False,
) -> None:
    """List keys with the time of their last use, without secrets."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import commands

    commands.list_keys(reach(options, console(), json), tenant)


@list_command(audit_app)
@expand_options
def audit_ls(
    options: EtcdOptions,
    tenant: Annotated[
        str, typer.Option(help="Only this tenant. _cluster: only priority classes.")
    ] = "",
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this kind, for example api_key.created or api_key. Can be repeated."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of changes to list.", min=1)] = 100,
    json: Json = False,
) -> None:
    """List changes of tenants, projects, keys and classes, newest first."""
    from baton.cli.admin.target import reach
    from baton.cli.admin.tenancy import audit

    target = reach(options, console(), json)
    audit.list_changes(target, tenant, event or (), limit)
