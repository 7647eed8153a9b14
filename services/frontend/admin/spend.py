"""Monthly budgets and spend alerts, of the tenant and of its projects.

Both work the same way: if the path names a project they are the project's, otherwise the tenant's.
"""

from collections.abc import Sequence

from baton.errors import invalid_field
from baton.request.prices import NANODOLLARS
from baton.tenancy.limits.spec import MAX_BUDGET, Subject
from baton.tenancy.records.tenants import Project, SpendAlert, Tenant
from services.frontend.admin import objects
from services.frontend.admin.bodies import SpendAlertBody, SpendLimitUpdate, read
from services.frontend.admin.call import AdminCall, missing
from services.frontend.admin.objects import Object
from services.frontend.http.query import QueryString

CENT = NANODOLLARS // 100
MAX_CENTS = MAX_BUDGET // CENT
_FIXED = {"currency": "USD", "interval": "month"}


async def retrieve_limit(call: AdminCall) -> Object:
    """Return a budget."""
    whose, _ = await _whose(call)
    if not whose.budget_nanodollars_per_month:
        missing("spend limit of", whose.id)
    return await _limit(call, whose)


async def update_limit(call: AdminCall) -> Object:
    """Set a budget."""
    body = read(SpendLimitUpdate, call.body)
    cents = _checked(body)
    whose, _ = await _whose(call)
    return await _limit(call, await call.admin.spend.set_limit(whose, cents * CENT))


async def delete_limit(call: AdminCall) -> Object:
    """Delete a budget."""
    whose, _ = await _whose(call)
    if not whose.budget_nanodollars_per_month:
        missing("spend limit of", whose.id)
    await call.admin.spend.set_limit(whose, 0)
    return {"object": f"{_kind(whose)}.spend_limit.deleted", "deleted": True}


async def list_alerts(call: AdminCall) -> Object:
    """List alerts in order of creation."""
    query = QueryString(call.query, ("after", "before", "limit", "order"))
    limit, after, before = query.limit(), query.text("after"), query.text("before")
    whose, _ = await _whose(call)
    alerts = sorted(whose.spend_alerts, key=lambda one: one.id)
    if query.one_of("order", ("asc", "desc")) == "desc":
        alerts.reverse()
        found = [one for one in alerts if not after or one.id < after]
        found = [one for one in found if not before or one.id > before]
    else:
        found = [one for one in alerts if one.id > after and (not before or one.id < before)]
    shown = [_alert(whose, one) for one in found[:limit]]
    return objects.page(shown, has_more=len(found) > limit)


async def create_alert(call: AdminCall) -> Object:
    """Create an alert."""
    alert = _read_alert(call, "")
    whose, _ = await _whose(call)
    return _alert(whose, await call.admin.spend.create_alert(whose, alert))


async def retrieve_alert(call: AdminCall) -> Object:
    """Return an alert."""
    whose, ids = await _whose(call)
    found = next((one for one in whose.spend_alerts if one.id == ids[0]), None)
    if found is None:
        missing("spend alert", ids[0])
    return _alert(whose, found)


async def update_alert(call: AdminCall) -> Object:
    """Replace an alert."""
    whose, ids = await _whose(call)
    alert = _read_alert(call, ids[0])
    return _alert(whose, await call.admin.spend.update_alert(whose, alert))


async def delete_alert(call: AdminCall) -> Object:
    """Delete an alert."""
    whose, ids = await _whose(call)
    await call.admin.spend.delete_alert(whose, ids[0])
    return objects.deleted(f"{_kind(whose)}.spend_alert", ids[0])


async def _whose(call: AdminCall) -> tuple[Tenant | Project, Sequence[str]]:
    """Return the record that the path names, and the remaining ids of the path."""
    directory = await call.directory()
    if call.of_project:
        return call.project(directory), call.ids[1:]
    return directory.tenants[call.tenant], call.ids


async def _limit(call: AdminCall, whose: Tenant | Project) -> Object:
    subject = Subject.PROJECT if isinstance(whose, Project) else Subject.TENANT
    spent = await call.admin.spending.of(subject, whose.id)
    budget = whose.budget_nanodollars_per_month
    reached = spent.spent + spent.reserved >= budget
    return {
        "object": f"{_kind(whose)}.spend_limit",
        **_FIXED,
        "threshold_amount": budget // CENT,
        "enforcement": {"status": "enforcing" if reached else "inactive"},
    }


def _alert(whose: Tenant | Project, alert: SpendAlert) -> Object:
    return {
        "object": f"{_kind(whose)}.spend_alert",
        "id": alert.id,
        **_FIXED,
        "threshold_amount": alert.threshold_nanodollars // CENT,
        "notification_channel": {
            "type": "email",
            "recipients": list(alert.recipients),
            "subject_prefix": alert.subject_prefix or None,
        },
    }


def _kind(whose: Tenant | Project) -> str:
    return "project" if isinstance(whose, Project) else "organization"


def _read_alert(call: AdminCall, ident: str) -> SpendAlert:
    body = read(SpendAlertBody, call.body)
    cents, channel = _checked(body), body.notification_channel
    if channel.type != "email":
        raise invalid_field(
            "notification_channel.type", f"{channel.type[:64]!r} is not supported: use 'email'"
        )
    return SpendAlert(
        id=ident,
        threshold_nanodollars=cents * CENT,
        recipients=tuple(channel.recipients),
        subject_prefix=channel.subject_prefix or "",
    )


def _checked(body: SpendLimitUpdate | SpendAlertBody) -> int:
    """Return the cents of a body.

    Raises:
        BatonError: INVALID_FIELD.
    """
    for name, only in _FIXED.items():
        value: str = getattr(body, name)
        if value != only:
            raise invalid_field(name, f"{value[:64]!r} is not supported: use {only!r}")
    if not 1 <= body.threshold_amount <= MAX_CENTS:
        raise invalid_field(
            "threshold_amount", f"{body.threshold_amount} is out of range: 1 to {MAX_CENTS} cents"
        )
    return body.threshold_amount
