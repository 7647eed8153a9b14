"""Projects of the tenant."""

from baton.errors import BatonError, Reason
from baton.tenancy.directory.listing import page
from services.frontend.admin import objects
from services.frontend.admin.bodies import ProjectCreate, ProjectUpdate, read
from services.frontend.admin.call import AdminCall
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString


async def list_projects(call: AdminCall) -> Object:
    """List projects, and archived ones on request."""
    query = QueryString(call.query, ("after", "include_archived", "limit"))
    archived = query.one_of("include_archived", ("false", "true")) == "true"
    limit, after = query.limit(), query.text("after")
    directory = await call.directory()
    found, has_more = page(
        directory.projects_of.of(call.tenant),
        limit,
        lambda ident: archived or not directory.projects[ident].archived_seconds,
        after=after,
    )
    shown = [objects.project(directory.projects[ident]) for ident in found]
    return objects.page(shown, has_more=has_more)


async def create_project(call: AdminCall) -> Object:
    """Create a project."""
    body = read(ProjectCreate, call.body)
    return objects.project(await call.admin.create_project(call.tenant, body.name))


async def retrieve_project(call: AdminCall) -> Object:
    """Return a project."""
    return objects.project(call.project(await call.directory()))


async def update_project(call: AdminCall) -> Object:
    """Rename a project."""
    body = read(ProjectUpdate, call.body)
    project = call.project(await call.directory())
    if body.name is None or body.name == project.name:
        return objects.project(project)
    changed = await call.admin.rename_project(call.tenant, project.id, body.name)
    return objects.project(changed)


async def archive_project(call: AdminCall) -> Object:
    """Archive a project permanently; its keys are rejected."""
    project = call.project(await call.directory())
    if project.archived_seconds:
        return objects.project(project)
    if project.id == call.who.project.id:
        raise BatonError(
            Reason.FAILED_PRECONDITION,
            "the request's API key belongs to this project, and archiving would revoke it: use a "
            "key "
            "of another project",
        )
    return objects.project(await call.admin.archive_project(call.tenant, project.id))
