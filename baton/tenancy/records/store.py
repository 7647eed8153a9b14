"""Reads and changes records in etcd: each change with its audit record, in order."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.errors import BatonError, Reason, invalid_field
from baton.telemetry.logs import get_logger
from baton.tenancy.records.adapters import AdapterRecord
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.audit import (
    MAX_RECORDS,
    Actor,
    AuditHead,
    AuditRecord,
    describe,
    difference,
    record_id,
)
from baton.tenancy.records.auto import AutoRules
from baton.tenancy.records.classes import ClassPolicy
from baton.tenancy.records.policies import ModelPolicy
from baton.tenancy.records.providers import Provider
from baton.tenancy.records.tenants import (
    KIND_OF,
    Key,
    Project,
    Record,
    ServiceAccount,
    Tenant,
    check,
    encode,
    parse,
)

R = TypeVar("R", bound=Record)

ATTEMPTS = 16
"""Attempts of a change that conflicts with others."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1
"""Bounds of the pause between two attempts."""

_NAMES: dict[type, str] = {
    Tenant: "tenant {} does not exist: list tenants with `baton tenants ls`",
    Project: "project {} does not exist: list projects with `baton projects ls`",
    ServiceAccount: "service account {} does not exist",
    Key: "key {} does not exist: list keys with `baton keys ls`",
    ClassPolicy: "priority class {} does not exist",
    ModelAlias: "alias {} does not exist: list aliases with `baton aliases ls`",
    AutoRules: "rules of {} do not exist: set them with `baton auto set`",
    AdapterRecord: "adapter {} is not registered: list adapters with `baton adapters ls`",
    Provider: "provider {} does not exist: list providers with `baton providers ls`",
    ModelPolicy: "model {} has no policy: list policies with `baton policies ls`",
}

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordChange(Generic[R]):
    """One record before and after a change."""

    event: str
    """Event of the `AuditRecord`."""
    after: R
    before: R | None = None
    """None: the record is created."""
    stored: bytes | None = None
    """The stored value now."""
    value: bytes = b""
    """The new stored value; empty: `after`."""
    project: Project | None = None
    """Project that the record belongs to."""

    @property
    def new_value(self) -> bytes:
        return self.value or encode(self.after)


class RecordStore:
    """Reads and writes the records of a cluster. Lives on an event loop.

    All changes of one tenant are serialized, across processes: each writes the tenant's
    `AuditHead`, and is rejected by etcd and retried if another one did so since it began. So what a
    change read is still valid when it is written, and every change has its audit record.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.
    """

    def __init__(self, etcd: Etcd, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._prefix = keys.tenancy(cluster)
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        """Serializes the changes of this process, so that they do not conflict in etcd."""

    def now(self) -> int:
        """Return the time in seconds since the Unix epoch."""
        return int(self._clock())

    def new_id(self, kind: str) -> str:
        """Return a new ID: a prefix such as `key_` and 16 digits, of which the first 11 are
        milliseconds.

        So IDs sort by creation time. Two of one millisecond differ in 20 random bits; etcd rejects
        an existing ID.
        """
        return f"{kind}_{int(self._clock() * 1000):011x}{secrets.randbits(20):05x}"

    # Reading.

    async def get(self, kind: type[R], ident: str) -> tuple[R, bytes]:
        """Return a record, and its stored value.

        Raises:
            BatonError: NOT_FOUND.
        """
        stored = await self._etcd.get(self._key(kind, ident)) if ident else None
        if stored is None:
            raise not_found(_NAMES[kind].format(repr(ident)))
        return parse(kind, ident, stored), stored

    async def exists(self, kind: type[R], ident: str) -> bool:
        """Return whether a record with that ID exists."""
        return await self._etcd.get(self._key(kind, ident)) is not None

    async def all(self, kind: type[R]) -> AsyncIterator[R]:
        """Yield all records of a kind, by ID."""
        prefix = self._key(kind, "")
        async with aclosing(self._etcd.pages(prefix)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    yield parse(kind, key.removeprefix(prefix), value)

    async def revision(self, tenant: str) -> int:
        """Return the etcd revision of a tenant's last change; 0: there is none."""
        _, revision = await self._etcd.get_revised(keys.audit(self._cluster, tenant))
        return revision

    # Changing.

    async def commit(
        self, tenant: str, actor: Actor, plan: Callable[[], Awaitable[RecordChange[R]]]
    ) -> R:
        """Make a change, and return the record as it is now.

        Args:
            tenant: tenant of the record.
            actor: the author of the change.
            plan: reads what it needs and returns the change; called again after a conflict.

        Raises:
            BatonError: what `plan` raises; INVALID_FIELD; ABORTED, conflicts persist.
            EtcdError: etcd is unavailable. The change may have been made.
        """
        async with self._one_at_a_time:
            for attempt in range(ATTEMPTS):
                head_key = keys.audit(self._cluster, tenant)
                head = await self._etcd.get(head_key)
                change = await plan()
                require_valid(change.after)
                number = 1 if head is None else _changes(head) + 1
                audit = self._audit(number, actor, change)
                if await self._write(tenant, head, number, audit, change):
                    _tell(tenant, audit)
                    return change.after
                longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**attempt)
                await asyncio.sleep(random.random() * longest)
        raise BatonError(Reason.ABORTED, f"{tenant} is being changed by other requests; retry")

    async def update(
        self,
        tenant: str,
        actor: Actor,
        kind: type[R],
        ident: str,
        event: str,
        change: Callable[[R], dict[str, Any]],
        project: Project | None = None,
    ) -> R:
        """Change fields of a record; fields unknown to this release are kept.

        Args:
            tenant: whose record it is.
            actor: who changes it.
            kind: of record.
            ident: of the record.
            event: what happens, as of `AuditRecord`.
            change: returns the new values of fields by name.
            project: that it belongs to.
        """

        return await self.commit(
            tenant, actor, lambda: self.changed(kind, ident, event, change, project)
        )

    async def changed(
        self,
        kind: type[R],
        ident: str,
        event: str,
        change: Callable[[R], dict[str, Any]],
        project: Project | None = None,
    ) -> RecordChange[R]:
        """Return the change that `update` commits, for the current record."""
        record, stored = await self.get(kind, ident)
        changes = change(record) | {"version": record.version + 1}
        fields: dict[str, Any] = msgspec.json.decode(stored)
        fields |= {name: msgspec.to_builtins(value) for name, value in changes.items()}
        value = msgspec.json.encode({k: v for k, v in fields.items() if v not in (0, None)})
        try:
            after = parse(kind, ident, value)
        except ValueError as error:
            raise invalid_record(error) from None
        return RecordChange(event, after, record, stored, value, project)

    async def _write(
        self,
        tenant: str,
        head: bytes | None,
        number: int,
        audit: AuditRecord,
        change: RecordChange[Any],
    ) -> bool:
        head_key = keys.audit(self._cluster, tenant)
        record_key = self._key(type(change.after), change.after.id)
        audit_key, told = f"{head_key}/{audit.id}", encode(audit)
        pairs = [
            (record_key, change.new_value),
            (audit_key, told),
            (head_key, encode(AuditHead(number))),
        ]
        oldest = number - MAX_RECORDS
        gone = [f"{head_key}/{record_id(oldest)}"] if oldest > 0 else []
        try:
            return await self._etcd.replace_all(
                [(head_key, head), (record_key, change.stored)], pairs, gone
            )
        except EtcdError:
            # It is unknown whether it was made. Its audit record, which names it, tells.
            if await self._etcd.get(audit_key) == told:
                return True
            raise

    def _audit(self, number: int, actor: Actor, change: RecordChange[Any]) -> AuditRecord:
        before, after = difference(change.before, change.after)
        project, name = describe(change.after, change.project)
        return AuditRecord(
            id=record_id(number),
            at_seconds=self.now(),
            event=change.event,
            actor=actor,
            resource=change.after.id,
            project=project,
            project_name=name,
            before=before,
            after=after,
        )

    def _key(self, kind: type, ident: str) -> str:
        return f"{self._prefix}{KIND_OF[kind]}/{ident}"


def not_found(what: str) -> BatonError:
    """Return NOT_FOUND."""
    return BatonError(Reason.NOT_FOUND, what)


def _changes(head: bytes) -> int:
    return msgspec.json.decode(head, type=AuditHead).changes


def _tell(tenant: str, audit: AuditRecord) -> None:
    log.info(
        "tenancy.record.changed",
        tenant=tenant,
        change=audit.id,
        event_type=audit.event,
        actor=audit.actor.key or "operator",
        resource=audit.resource,
        project=audit.project,
        before=audit.before,
        after=audit.after,
    )


def require_valid(record: Record) -> None:
    """Check a record.

    Raises:
        BatonError: INVALID_FIELD.
    """
    try:
        check(record)
    except ValueError as error:
        raise invalid_record(error) from None


def invalid_record(error: ValueError) -> BatonError:
    """Return INVALID_FIELD for the error of a check, whose message is `field: sentence`."""
    field, _, what = str(error).partition(": ")
    return invalid_field(field, what)
