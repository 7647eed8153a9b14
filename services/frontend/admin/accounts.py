"""Service accounts of a project, and the keys that are made for them."""

from collections.abc import Sequence

from baton.errors import BatonError, Reason, invalid_field
from baton.tenancy.directory.listing import page
from baton.tenancy.records.tenants import Key, Project, ServiceAccount
from services.frontend.admin import objects
from services.frontend.admin.bodies import (
    PROJECT_SCOPES,
    AccountCreate,
    AccountUpdate,
    KeyCreate,
    check_scopes,
    read,
    seconds,
)
from services.frontend.admin.call import AdminCall
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString


async def list_accounts(call: AdminCall) -> Object:
    """List service accounts."""
    query = QueryString(call.query, ("after", "limit"))
    limit, after = query.limit(), query.text("after")
    directory = await call.directory()
    ids = directory.accounts_of.of(call.project(directory).id)
    found, has_more = page(ids, limit, lambda _: True, after=after)
    shown = [objects.account(directory.accounts[ident]) for ident in found]
    return objects.page(shown, has_more=has_more)


async def create_account(call: AdminCall) -> Object:
    """Create a service account, and a key for it unless the request opts out."""
    body = read(AccountCreate, call.body)
    expires = seconds(body.expires_in_seconds)
    if expires and body.create_service_account_only:
        raise invalid_field(
            "expires_in_seconds", "not allowed: the request creates no key that could expire"
        )
    project = call.project(await call.directory())
    account = await call.admin.create_account(project, body.name)
    shown = objects.account(account)
    if body.create_service_account_only:
        return shown | {"role": "none", "api_key": None}
    key, secret = await _make_key(call, project, account, body.name, (PROJECT_SCOPES[0],), expires)
    return shown | {"api_key": objects.new_key(key, secret)}


async def retrieve_account(call: AdminCall) -> Object:
    """Return a service account."""
    return objects.account(call.account(await call.directory()))


async def update_account(call: AdminCall) -> Object:
    """Rename a service account; its role is `member`."""
    body = read(AccountUpdate, call.body)
    if body.role not in (None, "member"):
        raise BatonError(
            Reason.UNSUPPORTED_PARAMETER,
            "role: not supported for service accounts, which are members",
            field="role",
        )
    directory = await call.directory()
    account, project = call.account(directory), call.project(directory)
    if body.name is None or body.name == account.name:
        return objects.account(account)
    return objects.account(await call.admin.rename_account(project, account.id, body.name))


async def delete_account(call: AdminCall) -> Object:
    """Delete a service account permanently; its keys are rejected."""
    directory = await call.directory()
    account = call.account(directory)
    await call.admin.delete_account(call.project(directory), account.id)
    return objects.deleted("organization.project.service_account", account.id)


async def create_account_key(call: AdminCall) -> Object:
    """Create another key for a service account."""
    body = read(KeyCreate, call.body)
    expires = seconds(body.expires_in_seconds)
    scopes = body.scopes or PROJECT_SCOPES[:1]
    check_scopes(scopes)
    directory = await call.directory()
    account = call.account(directory)
    name = body.name or account.name
    key, secret = await _make_key(call, call.project(directory), account, name, scopes, expires)
    return objects.new_key(key, secret)


async def _make_key(
    call: AdminCall,
    project: Project,
    account: ServiceAccount,
    name: str,
    scopes: Sequence[str],
    expires: int,
) -> tuple[Key, str]:
    return await call.admin.create_key(
        project, scopes, name=name, expires_in_seconds=expires, service_account=account.id
    )
