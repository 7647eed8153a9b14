"""Quotas of tenants from their records in etcd, applied as soon as they change."""

from collections.abc import Mapping

from baton.telemetry.logs import get_logger
from baton.tenancy.records.tenants import Tenant, parse
from services.kvstore.store import Store

log = get_logger(__name__)


class TenantQuotas:
    """A `baton.cluster.follow.Listener` of tenants. A store has one, on its event loop.

    A tenant that is not listed keeps its quota, so that an etcd that lost its data lifts none; one
    whose record is deleted, or has no quota, gets that of the settings.

    Args:
        store: applies the quotas.
        settings: most bytes of tenants in a tier, if the record has none.
    """

    def __init__(self, store: Store, settings: Mapping[str, int]) -> None:
        self._store = store
        self._settings = settings

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            tenant = parse(Tenant, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        self._store.set_quota(name, tenant.kv_bytes or self._settings.get(name))

    def end(self) -> None:
        """Finish a full list."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._store.set_quota(name, self._settings.get(name))
        else:
            self.take(name, value)
