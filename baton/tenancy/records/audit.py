"""Audit records in etcd: what was changed, by whom and when, written in the change's
transaction."""

from collections.abc import Mapping
from typing import Any

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.tenancy.records.tenants import Key, Project, Record

MAX_RECORDS = 500
"""Records per tenant: with each new one, the oldest is deleted."""
PAGE = 100
_MAX_VALUE_BYTES = 512
"""Largest field value; of a longer one only the size is recorded."""
_ID_DIGITS = 16
_SECRET = {"sha256", "old_secret"}
_UNTOLD = _SECRET | {"version"}


class Actor(msgspec.Struct, omit_defaults=True, frozen=True):
    """The author of a change."""

    key: str = ""
    """ID of the API key; empty: a user with access to etcd, as the command line has."""
    service_account: str = ""
    """Service account of the key."""
    request_id: str = ""


OPERATOR = Actor()
"""A user with access to etcd."""
CLUSTER = "_cluster"
"""Pseudo-tenant for changes of cluster-wide records; no tenant can have this name."""


class AuditRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One change of one record."""

    id: str
    """`audit_` and 16 hexadecimal digits, which count the changes of a tenant."""
    at_seconds: int
    """Seconds since the Unix epoch."""
    event: str
    """The event, in OpenAI's terms, such as `project.created`."""
    actor: Actor
    resource: str
    """ID of the record."""
    project: str = ""
    """ID of its project; empty: it belongs to none."""
    project_name: str = ""
    before: dict[str, Any] = {}
    """Old values of changed fields; empty for a new record."""
    after: dict[str, Any] = {}
    """New values of these fields; for a new record, all that are set. Never a secret or its
    digest."""


class AuditHead(msgspec.Struct):
    """Number of changes of a tenant: the one key that all its changes write."""

    changes: int = 0


def record_id(number: int) -> str:
    """Return the ID of a tenant's change; the first is number 1."""
    return f"audit_{number:0{_ID_DIGITS}x}"


def shown(record: Record) -> dict[str, Any]:
    """Return the fields of a record without digests of secrets."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    for name in _SECRET:
        fields.pop(name, None)
    if isinstance(record, Key) and record.old_secret is not None:
        fields["old_secret"] = {"until_seconds": record.old_secret.until_seconds}
    return fields


def difference(before: Record | None, after: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the changed fields, with old and new values. Bounded in size."""
    new = shown(after)
    old = {} if before is None else shown(before)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    told = [name for name in names if name not in _UNTOLD]
    if isinstance(before, Key) and isinstance(after, Key) and before.sha256 != after.sha256:
        old["secret"], new["secret"] = "replaced", "new"
        told.append("secret")
    return _bounded(old, told), _bounded(new, told)


def _bounded(fields: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in names:
        if name in fields:
            value = fields[name]
            size = len(msgspec.json.encode(value))
            told[name] = value if size <= _MAX_VALUE_BYTES else f"{size} bytes"
    return told


class AuditLog:
    """Reads the audit records of tenants.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._cluster = cluster

    async def page(self, tenant: str, before: str = "") -> list[AuditRecord]:
        """Return up to PAGE records of a tenant, newest first.

        Args:
            tenant: the tenant.
            before: only records older than this ID; empty: the newest.

        Raises:
            EtcdError: etcd is unavailable.
        """
        prefix = keys.audit(self._cluster, tenant) + "/"
        end = prefix + before if before else ""
        pairs = await self._etcd.last(prefix, end, PAGE)
        return [msgspec.json.decode(value, type=AuditRecord) for _, value in pairs]


def describe(record: Record, project: Project | None) -> tuple[str, str]:
    """Return ID and name of the project that a record belongs to; empty: none."""
    if isinstance(record, Project):
        return record.id, record.name
    return ("", "") if project is None else (project.id, project.name)
