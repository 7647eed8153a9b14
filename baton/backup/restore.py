"""Restores a backup into etcd, empty or in use, so that it can be repeated at any point."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from baton.backup.errors import BackupError
from baton.backup.layout import BackupHeader, NamedValue
from baton.backup.merge import MergeRules, Outcome, is_lost, merge, new_epoch
from baton.backup.reader import Backup
from baton.backup.usage_since import UsageSince
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.tenancy.directory.watch import EPOCH
from baton.tenancy.limits.budget.record import SpendRecord
from baton.tenancy.limits.spec import BUDGET, Subject
from baton.tenancy.records.audit import CLUSTER, OPERATOR, AuditHead, AuditRecord, record_id
from baton.tenancy.records.tenants import encode

RESTORED_EVENT = "backup.restored"
_ATTEMPTS = 16
_BATCH_RECORDS = 64
_BATCH_BYTES = 256 << 10
"""Values of one transaction, of which etcd takes 1.5 MiB."""
_SUBJECTS = {"tenants": Subject.TENANT, "projects": Subject.PROJECT, "keys": Subject.KEY}


@dataclass
class Restored:
    """What a restore did."""

    counts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    kept_out: list[tuple[str, Outcome]] = field(default_factory=list)
    """Names of records that were deleted or ended since the backup, and stay so."""

    def note(self, name: str, outcome: Outcome) -> None:
        """Count a record."""
        self.counts[outcome] += 1
        if outcome in (Outcome.DELETED, Outcome.ENDED):
            self.kept_out.append((name, outcome))


class Restore:
    """Writes the records of a backup into a cluster's etcd.

    Each batch is a transaction that is applied only if nothing in it was changed since it was read,
    and each record is merged with what etcd holds, so that a restore may run next to a cluster in
    use, and again after it was killed. The epoch is written last, and is a new one: frontends that
    were cut off meanwhile then remove nothing, and write back what they know to be newer.

    Args:
        etcd: the connection.
        cluster: name of the cluster, which may be another one than the backup's.
        backup: to restore.
        passphrase: of the backup.
        revive: whether to bring back what was deleted or ended since.
        usage: costs of requests, to which spending is completed if etcd has lost it.
        clock: returns seconds since the Unix epoch.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        backup: Backup,
        passphrase: bytes,
        *,
        revive: bool = False,
        usage: UsageSince | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._backup = backup
        self._passphrase = passphrase
        self._clock = clock
        self._rules = MergeRules(backup.header.id, True, revive, int(clock()), usage)
        self._done = Restored()
        self._budgets: set[str] = set()
        """Subjects whose spending counts, `tenant/acme`, without those that have a record of it."""

    async def run(self) -> Restored:
        """Verify the backup, then restore it.

        Raises:
            BackupError: it cannot be used, in which case nothing was written; or records are
                changed all the time.
            EtcdError: etcd is unavailable; a part may have been restored.
        """
        self._backup.verify(self._passphrase)
        header = self._backup.header
        revision = await self._etcd.revision()
        epoch_key = keys.tenancy(self._cluster) + EPOCH
        epoch = (await self._etcd.get(epoch_key) or b"").decode()
        lost = is_lost(epoch, revision, header.epoch, header.revision)
        self._rules = replace(self._rules, lost=lost)
        recorded: set[str] = set()
        for records in self._backup.batches(self._passphrase):
            for batch in _batches(records):
                await self._restore(batch)
            for name, value in records:
                if name.startswith("spending/"):
                    recorded.add(name)
                elif subject := _budget_of(name, value):
                    self._budgets.add(subject)
        for batch in _batches(list(self._unrecorded(recorded))):
            await self._restore(batch, told=False)
        await self._audit(header)
        if lost:
            epoch = new_epoch(secrets.token_hex(8), header.epoch.partition(":")[0], header.revision)
            await self._etcd.put(epoch_key, epoch.encode())
        return self._done

    def _unrecorded(self, recorded: set[str]) -> Iterator[NamedValue]:
        """Yield empty records of what was spent first after the backup."""
        if self._rules.usage is not None and self._rules.lost:
            for subject, name in self._rules.usage.names():
                if subject in self._budgets and name not in recorded:
                    yield name, encode(SpendRecord(""))

    async def _restore(self, batch: Sequence[NamedValue], *, told: bool = True) -> None:
        root = keys.cluster(self._cluster)
        for _ in range(_ATTEMPTS):
            stored = await self._etcd.get_all_revised([root + name for name, _ in batch])
            merged = [
                (name, merge(name, saved, stored.get(root + name, (None, 0))[0], self._rules))
                for name, saved in batch
            ]
            pairs = [(root + name, one.value) for name, one in merged if one.value is not None]
            revisions = {key: stored.get(key, (None, 0))[1] for key, _ in pairs}
            if not pairs or await self._etcd.put_all_revised(revisions, pairs):
                for name, one in merged if told else ():
                    self._done.note(name, one.outcome)
                return
        raise BackupError("Records are being changed all the time: restore again")

    async def _audit(self, header: BackupHeader) -> None:
        """Write the audit record of this restore."""
        head_key = keys.audit(self._cluster, CLUSTER)
        for _ in range(_ATTEMPTS):
            head = await self._etcd.get(head_key)
            number = 1 + (msgspec.json.decode(head, type=AuditHead).changes if head else 0)
            record = AuditRecord(
                id=record_id(number),
                at_seconds=int(self._clock()),
                event=RESTORED_EVENT,
                actor=OPERATOR,
                resource=header.id,
                after={"revision": header.revision, "revive": self._rules.revive}
                | {str(outcome): count for outcome, count in self._done.counts.items() if count},
            )
            pairs = [
                (head_key, encode(AuditHead(number))),
                (f"{head_key}/{record.id}", encode(record)),
            ]
            if await self._etcd.replace_all([(head_key, head)], pairs):
                return
        raise BackupError("Classes are being changed all the time: restore again")


def _batches(records: Sequence[NamedValue]) -> Iterator[list[NamedValue]]:
    """Yield records in parts that fit a transaction."""
    batch: list[NamedValue] = []
    size = 0
    for record in records:
        if batch and (len(batch) == _BATCH_RECORDS or size + len(record[1]) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record[1])
    if batch:
        yield batch


def _budget_of(name: str, value: bytes) -> str:
    """Return the subject of a record with a budget or alerts, `tenant/acme`; empty: it has none."""
    prefix, _, rest = name.partition("/")
    kind, _, ident = rest.partition("/")
    if prefix != "tenancy" or kind not in _SUBJECTS:
        return ""
    try:
        fields = msgspec.json.decode(value, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    counts = fields.get(BUDGET) or fields.get("spend_alerts")
    return f"{_SUBJECTS[kind]}/{ident}" if counts else ""
