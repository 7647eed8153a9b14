"""API keys: project keys and admin keys."""

from baton.errors import BatonError, Reason
from baton.tenancy.directory.listing import page
from baton.tenancy.records.tenants import Scope
from services.frontend.admin import objects
from services.frontend.admin.bodies import (
    PROJECT_SCOPES,
    AdminKeyCreate,
    KeyUpdate,
    check_scopes,
    read,
    seconds,
)
from services.frontend.admin.call import AdminCall, is_live
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString

_ACCESS = ("active", "any", "inactive")


async def list_keys(call: AdminCall) -> Object:
    """List all keys of a project, except those of deleted owners."""
    query = QueryString(call.query, ("after", "limit", "owner_project_access"))
    limit, after = query.limit(), query.text("after")
    access = query.one_of("owner_project_access", _ACCESS)
    directory = await call.directory()
    project = call.project(directory)
    ids = () if access == "inactive" else directory.keys_of.of(project.id)
    found, has_more = page(
        ids, limit, lambda ident: is_live(directory, directory.keys[ident]), after=after
    )
    keys = [directory.keys[ident] for ident in found]
    uses = await call.admin.last_uses_of(found)
    shown = [
        objects.project_key(key, directory.accounts.get(key.service_account), uses.get(key.id))
        for key in keys
    ]
    return objects.page(shown, has_more=has_more)


async def retrieve_key(call: AdminCall) -> Object:
    """Return a project's key."""
    directory = await call.directory()
    key = call.key(directory)
    owner = directory.accounts.get(key.service_account)
    uses = await call.admin.last_uses_of([key.id])
    return objects.project_key(key, owner, uses.get(key.id))


async def update_key(call: AdminCall) -> Object:
    """Change the permissions and the remaining lifetime of a project's key."""
    body = read(KeyUpdate, call.body)
    expires = seconds(body.expires_in_seconds)
    scopes = PROJECT_SCOPES if body.scopes == [] else body.scopes or ()
    check_scopes(scopes)
    directory = await call.directory()
    key = call.key(directory)
    if scopes or expires:
        key = await call.admin.change_key(key.id, scopes, expires)
    uses = await call.admin.last_uses_of([key.id])
    owner = directory.accounts.get(key.service_account)
    return objects.project_key(key, owner, uses.get(key.id))


async def delete_key(call: AdminCall) -> Object:
    """Revoke a project's key permanently."""
    key = call.key(await call.directory())
    await call.admin.revoke_key(key.id)
    return objects.deleted("organization.project.api_key", key.id)


async def list_admin_keys(call: AdminCall) -> Object:
    """List the tenant's admin keys."""
    query = QueryString(call.query, ("after", "limit", "order"))
    limit, after = query.limit(), query.text("after")
    descending = query.one_of("order", ("asc", "desc")) == "desc"
    directory = await call.directory()
    ids = sorted(
        ident
        for project in directory.projects_of.of(call.tenant)
        for ident in directory.admin_keys_of.of(project)
    )
    found, has_more = page(
        ids,
        limit,
        lambda ident: is_live(directory, directory.keys[ident]),
        after=after,
        descending=descending,
    )
    keys = [directory.keys[ident] for ident in found]
    uses = await call.admin.last_uses_of(found)
    shown = [objects.admin_key(key, uses.get(key.id)) for key in keys]
    return objects.page(shown, has_more=has_more)


async def create_admin_key(call: AdminCall) -> Object:
    """Create an admin key in the project of the calling key."""
    body = read(AdminKeyCreate, call.body)
    key, secret = await call.admin.create_key(
        call.who.project,
        (Scope.ADMIN,),
        name=body.name,
        expires_in_seconds=seconds(body.expires_in_seconds),
    )
    return objects.admin_key(key, None) | {"value": secret}


async def retrieve_admin_key(call: AdminCall) -> Object:
    """Return an admin key."""
    key = call.admin_key(await call.directory())
    uses = await call.admin.last_uses_of([key.id])
    return objects.admin_key(key, uses.get(key.id))


async def delete_admin_key(call: AdminCall) -> Object:
    """Revoke an admin key permanently. The calling key cannot revoke itself, so one remains."""
    key = call.admin_key(await call.directory())
    if key.id == call.who.key.id:
        raise BatonError(
            Reason.FAILED_PRECONDITION, "an API key cannot delete itself: use another key"
        )
    await call.admin.revoke_key(key.id)
    return objects.deleted("organization.admin_api_key", key.id)
