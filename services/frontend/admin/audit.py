"""The tenant's audit log, the newest change first."""

from collections.abc import Callable

from baton.tenancy.records.audit import PAGE, AuditRecord
from services.frontend.admin import objects
from services.frontend.admin.call import AdminCall
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString

_TIMES = ("effective_at[gt]", "effective_at[gte]", "effective_at[lt]", "effective_at[lte]")
_LISTS = ("actor_ids", "event_types", "project_ids", "resource_ids")
_MAX_TIME = 10**11


async def list_audit_logs(call: AdminCall) -> Object:
    """List the audit log's changes."""
    query = QueryString(call.query, ("after", "limit", *_TIMES, *_LISTS))
    limit, after = query.limit(), query.text("after")
    wanted = _filter(query)
    found: list[AuditRecord] = []
    while len(found) <= limit:
        records = await call.organizations.audit.page(call.tenant, after)
        found += filter(wanted, records)
        if len(records) < PAGE:
            break
        after = records[-1].id
    shown = [objects.audit_log(record) for record in found[:limit]]
    return objects.page(shown, has_more=len(found) > limit)


def _filter(query: QueryString) -> Callable[[AuditRecord], bool]:
    above, least, below, most = (query.whole(name, 0, _MAX_TIME, None) for name in _TIMES)
    least = max(least or 0, 0 if above is None else above + 1)
    most = min(_MAX_TIME if most is None else most, _MAX_TIME if below is None else below - 1)
    actors, events, projects, resources = (frozenset(query.many(name)) for name in _LISTS)

    def wanted(record: AuditRecord) -> bool:
        who = {record.actor.key, record.actor.service_account}
        return (
            least <= record.at_seconds <= most
            and (not actors or not actors.isdisjoint(who))
            and (not events or record.event in events)
            and (not projects or record.project in projects)
            and (not resources or record.resource in resources)
        )

    return wanted
