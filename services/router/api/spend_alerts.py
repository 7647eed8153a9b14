"""Logs once per month that spending crossed an alert of a tenant or project."""

from collections.abc import Sequence
from contextlib import suppress

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.request.prices import dollars
from baton.telemetry.logs import get_logger
from baton.tenancy.limits.budget.ledger import LedgerWrite
from baton.tenancy.limits.budget.month import name as month_name
from baton.tenancy.limits.budget.record import SpendRecord
from baton.tenancy.limits.spec import LimitId, Subject
from baton.tenancy.records.tenants import KIND_OF, Project, SpendAlert, Tenant, parse
from services.router.metrics import SPEND_ALERTS

_KINDS: dict[Subject, type[Tenant] | type[Project]] = {
    Subject.TENANT: Tenant,
    Subject.PROJECT: Project,
}

log = get_logger(__name__)


class SpendAlerts:
    """Marks alerts as crossed in the records of spending that are about to be written.

    A line is logged once its mark is in etcd, and only by the router that wrote it. A router killed
    between the two logs none.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._prefix = keys.tenancy(cluster)
        self._crossed: dict[tuple[LimitId, str], tuple[SpendAlert, int]] = {}
        """Alerts whose marks are being written to etcd, and what was spent by then."""

    async def mark(self, writes: Sequence[LedgerWrite]) -> list[LedgerWrite]:
        """Return the writes with the marks of alerts that they cross.

        Raises:
            EtcdError: etcd is unavailable.
        """
        names = {
            self._key(write.limit_id): write.limit_id
            for write in writes
            if write.limit_id.subject in _KINDS and write.record.settled
        }
        if not names:
            return list(writes)
        alerts: dict[LimitId, tuple[SpendAlert, ...]] = {}
        for key, value in (await self._etcd.get_all(list(names))).items():
            limit_id = names[key]
            with suppress(ValueError):  # frontends report that such a record is unreadable
                found = parse(_KINDS[limit_id.subject], limit_id.name, value)
                alerts[limit_id] = found.spend_alerts
        return [self._marked(write, alerts.get(write.limit_id, ())) for write in writes]

    def written(self, limit_id: LimitId, record: SpendRecord) -> None:
        """Log the alerts whose marks are now in etcd."""
        for ident in record.alerts:
            crossed = self._crossed.pop((limit_id, ident), None)
            if crossed is not None:
                alert, spent = crossed
                SPEND_ALERTS.labels(limit_id.subject.value).inc()
                log.warning(
                    "tenancy.spend_alert.crossed",
                    alert=ident,
                    subject=limit_id.subject.value,
                    name=limit_id.name,
                    month=month_name(limit_id.month),
                    threshold_dollars=dollars(alert.threshold_nanodollars),
                    spent_dollars=dollars(spent),
                    recipients=list(alert.recipients),
                    subject_prefix=alert.subject_prefix,
                )

    def _marked(self, write: LedgerWrite, alerts: tuple[SpendAlert, ...]) -> LedgerWrite:
        told, spent = write.record.alerts, write.record.settled
        crossed = [
            alert
            for alert in alerts
            if spent >= alert.threshold_nanodollars and alert.id not in told
        ]
        for alert in crossed:
            self._crossed[write.limit_id, alert.id] = alert, spent
        return write.marked((*told, *(alert.id for alert in crossed))) if crossed else write

    def _key(self, limit_id: LimitId) -> str:
        return f"{self._prefix}{KIND_OF[_KINDS[limit_id.subject]]}/{limit_id.name}"
