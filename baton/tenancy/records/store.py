"""How records are read from etcd and changed in it: each change with its audit record, in order."""

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
from baton.tenancy.records.audit import (
    MAX_RECORDS,
    Actor,
    AuditHead,
    AuditRecord,
    describe,
    difference,
    record_id,
)
from baton.tenancy.records.classes import ClassPolicy
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
"""Of a change that others come before."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.005, 0.1
"""Between two attempts, at most."""

_NAMES: dict[type, str] = {
    Tenant: "tenant {} does not exist: list tenants with `baton tenants ls`",
    Project: "project {} does not exist: list projects with `baton projects ls`",
    ServiceAccount: "service account {} does not exist",
    Key: "key {} does not exist: list keys with `baton keys ls`",
    ClassPolicy: "priority class {} does not exist",
}

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RecordChange(Generic[R]):
    """One record as it was and is to be."""

    event: str
    """As of `AuditRecord`."""
    after: R
    before: R | None = None
    """None: it is made."""
    stored: bytes | None = None
    """What etcd holds of it now."""
    value: bytes = b""
    """What it is to hold; empty: `after` alone."""
    project: Project | None = None
    """That it belongs to."""

    @property
    def new_value(self) -> bytes:
        return self.value or encode(self.after)


class RecordStore:
    """Reads and writes the records of a cluster. Lives on an event loop.

    All changes of one tenant are made one after the other, whoever makes them: each writes the
    tenant's `AuditHead`, and is refused by etcd and made anew where another one did so since it
    began. So what a change read is true when it is written, and it has its audit record or did not
    happen.

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
        """Changes of this process do not meet each other in etcd."""

    def now(self) -> int:
        """Return the time in seconds since the Unix epoch."""
        return int(self._clock())

    def new_id(self, kind: str) -> str:
        """Return a new id: `key_`, say, and 16 digits, of which the first 11 are milliseconds.

        So ids sort as records were made. Two of one millisecond differ in 20 random bits; etcd
        refuses an id that there is.
        """
        return f"{kind}_{int(self._clock() * 1000):011x}{secrets.randbits(20):05x}"

    # Reading.

    async def get(self, kind: type[R], ident: str) -> tuple[R, bytes]:
        """Return a record, and what etcd holds of it.

        Raises:
            BatonError: NOT_FOUND.
        """
        stored = await self._etcd.get(self._key(kind, ident)) if ident else None
        if stored is None:
            raise not_found(_NAMES[kind].format(repr(ident)))
        return parse(kind, ident, stored), stored

    async def exists(self, kind: type[R], ident: str) -> bool:
        """Return whether there is a record of that id."""
        return await self._etcd.get(self._key(kind, ident)) is not None

    async def all(self, kind: type[R]) -> AsyncIterator[R]:
        """Yield all records of a kind, by id."""
        prefix = self._key(kind, "")
        async with aclosing(self._etcd.pages(prefix)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    yield parse(kind, key.removeprefix(prefix), value)

    async def revision(self, tenant: str) -> int:
        """Return the revision of etcd that made the last change of a tenant; 0: there is none."""
        _, revision = await self._etcd.get_revised(keys.audit(self._cluster, tenant))
        return revision

    # Changing.

    async def commit(
        self, tenant: str, actor: Actor, plan: Callable[[], Awaitable[RecordChange[R]]]
    ) -> R:
        """Make a change, and return the record as it is now.

        Args:
            tenant: whose record it is.
            actor: who changes it.
            plan: reads what it must and returns what to do; called again where others were first.

        Raises:
            BatonError: what `plan` raises; INVALID_FIELD; ABORTED, others keep being first.
            EtcdError: etcd is away. The change may have been made.
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
        """Change fields of a record; those that this release does not know stay as they are.

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
        """Return what `update` is to commit, as the record is now."""
        record, stored = await self.get(kind, ident)
        changes = change(record) | {"version": record.version + 1}
        fields: dict[str, Any] = msgspec.json.decode(stored)
        fields |= {name: msgspec.to_builtins(value) for name, value in changes.items()}
        value = msgspec.json.encode({k: v for k, v in fields.items() if v not in (0, None)})
        try:
            after = parse(kind, ident, value)
        except ValueError as error:
            raise _invalid(error) from None
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
            # Whether it was made is not known. Its audit record, which names it, tells.
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
        raise _invalid(error) from None


def _invalid(error: ValueError) -> BatonError:
    field, _, what = str(error).partition(": ")
    return invalid_field(field, what)
