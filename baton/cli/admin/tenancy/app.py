"""The commands, as the command line has them."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from baton.cli.shared.options import ChangeOptions, EtcdOptions, expand_options, list_command

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TenantName = Annotated[str, typer.Argument(help="The tenant.")]
TierName = Literal["free", "pro", "enterprise"]
_WEIGHT = "Shares of what workers compute, beside other tenants that wait; 0: 1."


@dataclass(frozen=True)
class LimitOptions:
    """Limits that are set; 0 takes one away."""

    requests_per_minute: Annotated[
        int | None, typer.Option(help="Requests that may begin in a minute; 0: any.")
    ] = None
    tokens_per_minute: Annotated[
        int | None, typer.Option(help="Tokens of prompts and outputs in a minute; 0: any.")
    ] = None
    requests_at_once: Annotated[
        int | None, typer.Option(help="Requests that may run at a time; 0: any.")
    ] = None
    context_tokens: Annotated[
        int | None,
        typer.Option(help="Prompt and output of one request; 0: what the tier allows."),
    ] = None
    budget_per_month: Annotated[
        str | None,
        typer.Option(help="Dollars that requests may cost in a month, as 50.00; 0: any."),
    ] = None

    def given(self) -> dict[str, int]:
        """Return those that were given, by the names of records' fields."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        budget = found.pop("budget_per_month", None)
        if budget is not None:
            from baton.cli.admin.tenancy.budgets import read_budget

            found["budget_nanodollars_per_month"] = read_budget(budget)
        return found


tenants_app = typer.Typer(help="Who has keys: customers or departments.", no_args_is_help=True)
projects_app = typer.Typer(help="Teams or applications of a tenant.", no_args_is_help=True)
keys_app = typer.Typer(help="API keys.", no_args_is_help=True)
audit_app = typer.Typer(help="Who changed what.", no_args_is_help=True)


@tenants_app.command("create")
@expand_options
def tenants_create(
    options: ChangeOptions,
    limits: LimitOptions,
    name: TenantName,
    tier: Annotated[TierName, typer.Option(help="What it pays for.")] = "pro",
    kv_bytes: Annotated[
        str, typer.Option(help="Most KV in each tier of each store, as 1GiB; 0: any.")
    ] = "0",
    weight: Annotated[int, typer.Option(help=_WEIGHT)] = 0,
    json: Json = False,
) -> None:
    """Make a tenant, with a project `default`."""
    from baton.cli.admin.tenancy import commands

    target = commands.reach(options, console(), json)
    commands.create_tenant(target, name, tier, kv_bytes, weight, limits.given())


@tenants_app.command("set")
@expand_options
def tenants_set(
    options: ChangeOptions,
    limits: LimitOptions,
    name: TenantName,
    tier: Annotated[TierName | None, typer.Option(help="What it pays for.")] = None,
    kv_bytes: Annotated[
        str | None, typer.Option(help="Most KV in each tier of each store, as 1GiB; 0: any.")
    ] = None,
    weight: Annotated[int | None, typer.Option(help=_WEIGHT)] = None,
    json: Json = False,
) -> None:
    """Change a tenant; in force within a second."""
    from baton.cli.admin.tenancy import commands

    target = commands.reach(options, console(), json)
    commands.set_tenant(target, name, tier, kv_bytes, weight, limits.given())


@tenants_app.command("disable")
@expand_options
def tenants_disable(options: ChangeOptions, name: TenantName, json: Json = False) -> None:
    """Refuse all keys of a tenant."""
    from baton.cli.admin.tenancy import commands

    commands.disable_tenant(commands.reach(options, console(), json), name, disabled=True)


@tenants_app.command("enable")
@expand_options
def tenants_enable(options: ChangeOptions, name: TenantName, json: Json = False) -> None:
    """Take the keys of a disabled tenant again."""
    from baton.cli.admin.tenancy import commands

    commands.disable_tenant(commands.reach(options, console(), json), name, disabled=False)


@list_command(tenants_app)
@expand_options
def tenants_ls(options: EtcdOptions, json: Json = False) -> None:
    """List tenants."""
    from baton.cli.admin.tenancy import commands

    commands.list_tenants(commands.reach(options, console(), json))


@projects_app.command("create")
@expand_options
def projects_create(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="The project.")],
    json: Json = False,
) -> None:
    """Make a project."""
    from baton.cli.admin.tenancy import commands

    target = commands.reach(options, console(), json)
    commands.create_project(target, tenant, name, limits.given())


@projects_app.command("set")
@expand_options
def projects_set(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="The project, by name or id.")],
    json: Json = False,
) -> None:
    """Change the limits of a project; in force within a second."""
    from baton.cli.admin.tenancy import commands

    target = commands.reach(options, console(), json)
    commands.set_project(target, tenant, name, limits.given())


@projects_app.command("archive")
@expand_options
def projects_archive(
    options: ChangeOptions,
    tenant: TenantName,
    name: Annotated[str, typer.Argument(help="The project, by name or id.")],
    json: Json = False,
) -> None:
    """Refuse all keys of a project, for good."""
    from baton.cli.admin.tenancy import commands

    commands.archive_project(commands.reach(options, console(), json), tenant, name)


@list_command(projects_app)
@expand_options
def projects_ls(
    options: EtcdOptions,
    tenant: Annotated[str, typer.Argument(help="Only of this tenant.")] = "",
    json: Json = False,
) -> None:
    """List projects."""
    from baton.cli.admin.tenancy import commands

    commands.list_projects(commands.reach(options, console(), json), tenant)


@keys_app.command("create")
@expand_options
def keys_create(
    options: ChangeOptions,
    limits: LimitOptions,
    tenant: TenantName = "default",
    project: Annotated[str, typer.Option(help="The tenant's project, by name or id.")] = "default",
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may be used for: inference, usage or admin; several times. "
            "Default: inference."
        ),
    ] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="For projects and keys of the tenant: scope admin.")
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model or adapter that it may ask; several times. Default: all."),
    ] = None,
    expires: Annotated[str, typer.Option(help="After 30d, 12h, 90m or 60s. Default: never.")] = "",
    json: Json = False,
) -> None:
    """Make a key and print it, once.

    The tenant `default` is made where it does not exist.
    """
    from baton.cli.admin.tenancy import commands

    scopes = [*(scope or ()), *(("admin",) if admin else ())] or ["inference"]
    commands.create_key(
        commands.reach(options, console(), json),
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
    """Change the limits of a key; in force within a second."""
    from baton.cli.admin.tenancy import commands

    commands.set_key(commands.reach(options, console(), json), key, limits.given())


@keys_app.command("rotate")
@expand_options
def keys_rotate(
    options: ChangeOptions,
    key: Annotated[str, typer.Argument(help="The key's id.")],
    keep: Annotated[str, typer.Option(help="Take the secret before so long, too; 0: no more.")] = (
        "1h"
    ),
    json: Json = False,
) -> None:
    """Give a key a new secret and print it, once."""
    from baton.cli.admin.tenancy import commands

    commands.rotate_key(commands.reach(options, console(), json), key, keep)


@keys_app.command("revoke")
@expand_options
def keys_revoke(
    options: ChangeOptions,
    key: Annotated[str, typer.Argument(help="The key's id.")],
    json: Json = False,
) -> None:
    """Take a key no more, for good; in force within a second."""
    from baton.cli.admin.tenancy import commands

    commands.revoke_key(commands.reach(options, console(), json), key)


@list_command(keys_app)
@expand_options
def keys_ls(
    options: EtcdOptions,
    tenant: Annotated[str, typer.Argument(help="Only of this tenant.")] = "",
    json: Json = False,
) -> None:
    """List keys and when they were used last, never a secret."""
    from baton.cli.admin.tenancy import commands

    commands.list_keys(commands.reach(options, console(), json), tenant)


@list_command(audit_app)
@expand_options
def audit_ls(
    options: EtcdOptions,
    tenant: Annotated[
        str, typer.Option(help="Only of this tenant; _cluster: of priority classes.")
    ] = "",
    event: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind, as api_key.created or api_key; several times."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Most changes to list.", min=1)] = 100,
    json: Json = False,
) -> None:
    """List changes of tenants, projects, keys and classes, the newest first."""
    from baton.cli.admin.tenancy import audit, commands

    target = commands.reach(options, console(), json)
    audit.list_changes(target, tenant, event or (), limit)


def console() -> "Console":
    """Return where commands print to."""
    from rich.console import Console

    return Console(soft_wrap=not sys.stdout.isatty())
