"""Limits per minute of a project, which apply to all models together."""

from baton.tenancy.limits.spec import MAX_AMOUNT
from baton.tenancy.records.tenants import Project
from services.frontend.admin import objects
from services.frontend.admin.bodies import RateLimitUpdate, amount, read
from services.frontend.admin.call import AdminCall, missing
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString

IDENT = "rl-all-models"


async def list_rate_limits(call: AdminCall) -> Object:
    """List the limits of a project: one object for all models together."""
    query = QueryString(call.query, ("after", "before", "limit"))
    query.limit()
    project = call.project(await call.directory())
    beyond = query.text("after") or query.text("before")
    return objects.page([] if beyond else [_shown(project)], has_more=False)


async def update_rate_limit(call: AdminCall) -> Object:
    """Set limits of a project; limits that are left out do not change."""
    body = read(RateLimitUpdate, call.body)
    limits = {
        field: 0 if value == MAX_AMOUNT else value
        for field, name in objects.RATE_LIMITS.items()
        if (value := amount(name, getattr(body, name))) is not None
    }
    project = call.project(await call.directory())
    if call.ids[1] != IDENT:
        missing("rate limit", call.ids[1])
    if not limits:
        return _shown(project)
    return _shown(await call.admin.update_project(call.tenant, project.id, **limits))


def _shown(project: Project) -> Object:
    amounts = {
        name: getattr(project, field) or MAX_AMOUNT for field, name in objects.RATE_LIMITS.items()
    }
    return {"object": "project.rate_limit", "id": IDENT, "model": "*", **amounts}
