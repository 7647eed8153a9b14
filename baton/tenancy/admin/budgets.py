"""Changes to budgets and spending alerts, made by frontends."""

from typing import Any, TypeVar

import msgspec

from baton.errors import BatonError, Reason
from baton.tenancy.admin.keys import check_active
from baton.tenancy.records.audit import Actor
from baton.tenancy.records.store import RecordStore, not_found
from baton.tenancy.records.tenants import MAX_ALERTS, Project, SpendAlert, Tenant

R = TypeVar("R", bound=Tenant | Project)


class SpendAdministration:
    """Changes the budget of a tenant or project, and its spending alerts.

    Methods take the tenant or project, change its current record, and raise the errors of
    `Administration`.

    Args:
        store: store of records.
        actor: the author of the changes.
    """

    def __init__(self, store: RecordStore, actor: Actor) -> None:
        self._store = store
        self._actor = actor

    async def set_limit(self, whose: R, nanodollars: int) -> R:
        """Set a monthly budget; 0 removes it."""
        event = "spend_limit.updated" if nanodollars else "spend_limit.deleted"
        return await self._update(
            whose, event, lambda _: {"budget_nanodollars_per_month": nanodollars}
        )

    async def create_alert(self, whose: R, alert: SpendAlert) -> SpendAlert:
        """Add an alert and assign its ID."""
        made = msgspec.structs.replace(alert, id=self._store.new_id("spend_alert"))

        def change(alerts: tuple[SpendAlert, ...]) -> tuple[SpendAlert, ...]:
            if len(alerts) >= MAX_ALERTS:
                raise BatonError(
                    Reason.FAILED_PRECONDITION,
                    f"the limit of {MAX_ALERTS} spend alerts is reached: delete one",
                )
            return (*alerts, made)

        await self._change(whose, "spend_alert.created", change)
        return made

    async def update_alert(self, whose: R, alert: SpendAlert) -> SpendAlert:
        """Replace the alert with the same ID."""

        def change(alerts: tuple[SpendAlert, ...]) -> tuple[SpendAlert, ...]:
            _require(alerts, alert.id)
            return tuple(alert if one.id == alert.id else one for one in alerts)

        await self._change(whose, "spend_alert.updated", change)
        return alert

    async def delete_alert(self, whose: R, ident: str) -> None:
        """Delete an alert."""

        def change(alerts: tuple[SpendAlert, ...]) -> tuple[SpendAlert, ...]:
            _require(alerts, ident)
            return tuple(one for one in alerts if one.id != ident)

        await self._change(whose, "spend_alert.deleted", change)

    async def _change(self, whose: R, event: str, change: Any) -> R:
        return await self._update(
            whose, event, lambda now: {"spend_alerts": change(now.spend_alerts)}
        )

    async def _update(self, whose: R, event: str, change: Any) -> R:
        def checked(now: R) -> dict[str, Any]:
            if isinstance(now, Project):
                check_active(now)
            changes: dict[str, Any] = change(now)
            return changes

        tenant = whose.tenant if isinstance(whose, Project) else whose.id
        return await self._store.update(tenant, self._actor, type(whose), whose.id, event, checked)


def _require(alerts: tuple[SpendAlert, ...], ident: str) -> None:
    if not any(one.id == ident for one in alerts):
        raise not_found(f"spend alert {ident[:64]!r} does not exist")
