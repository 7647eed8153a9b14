"""Tenants' shares and the classes' policies, from their records in etcd.

Applied from the next request on, within a moment of each change. What is not listed keeps its
value, so that an etcd that lost its data changes nothing; a deleted record counts as never set.
"""

import math
from collections.abc import Callable

from baton.telemetry.logs import get_logger
from baton.tenancy.records import classes as class_record
from baton.tenancy.records.classes import CLASSES
from baton.tenancy.records.tenants import Tenant, Tier, parse
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.shares.tenants import DEFAULT_SHARE, TenantShare, TenantShares

log = get_logger(__name__)

TIERS = {Tier.ENTERPRISE: 0, Tier.PRO: 1, Tier.FREE: 2}
"""Ranks: the lowest goes first."""


class TenantRecords:
    """A `baton.cluster.follow.Listener` of tenants. Lives on the event loop.

    Args:
        shares: the shares to keep current.
    """

    def __init__(self, shares: TenantShares) -> None:
        self._shares = shares

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            tenant = parse(Tenant, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        self._shares.set(name, TenantShare(TIERS[tenant.tier], float(tenant.weight or 1)))

    def end(self) -> None:
        """Finish a full list."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._shares.set(name, DEFAULT_SHARE)
        else:
            self.take(name, value)


class ClassRecords:
    """A `baton.cluster.follow.Listener` of priority classes. Lives on the event loop.

    Args:
        on_change: called with the new policy of all classes.
    """

    def __init__(self, on_change: Callable[[AdmissionPolicy], None]) -> None:
        self._on_change = on_change
        self._classes: dict[int, ClassAdmission] = {}
        self._policy = AdmissionPolicy()

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            record = parse(class_record.ClassPolicy, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        self._classes[CLASSES[name]] = policy_of(record)

    def end(self) -> None:
        self._tell()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self.take(name, value)
        elif name in CLASSES:
            self._classes.pop(CLASSES[name], None)
        self._tell()

    def _tell(self) -> None:
        """Report a change; floors that cannot all be kept leave the policy unchanged."""
        try:
            policy = AdmissionPolicy(dict(self._classes))
        except ValueError as error:
            log.warning("router.classes.contradictory", error=str(error))
            return
        if policy != self._policy:
            self._policy = policy
            self._on_change(policy)


def policy_of(record: class_record.ClassPolicy) -> ClassAdmission:
    """Return the policy of a record, in which 0 means unset."""
    default = ClassAdmission()
    return ClassAdmission(
        floor=record.floor,
        ceiling=record.ceiling or default.ceiling,
        max_running=record.requests_at_once,
        weight=record.weight or default.weight,
        deadline=record.deadline_seconds or math.inf,
        ttft_target=record.ttft_target_seconds or math.inf,
        itl_target=record.itl_target_seconds,
        waits=record.waits,
        max_wait=record.max_wait_seconds or default.max_wait,
    )
