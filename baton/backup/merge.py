"""What a restore does with one record: which of two copies stays. Pure.

Of two copies of a record, the one with more changes stays, as where etcd has lost its data
(ADR 26). A record that etcd does not have was lost with its data, or deleted since the backup:
`lost` tells.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from baton.backup.spending import merge_spending
from baton.backup.usage_since import UsageSince
from baton.tenancy.records.audit import AuditHead
from baton.tenancy.records.tenants import KINDS, Record, parse

_ENDS = ("revoked_seconds", "archived_seconds", "disabled_seconds", "deleted_seconds")


class Outcome(StrEnum):
    """What happens to a record of a backup."""

    RESTORED = "restored"
    SAME = "same"
    """etcd has it already."""
    NEWER = "newer"
    """etcd has a newer one, which stays."""
    DELETED = "deleted"
    """It was deleted since the backup, and stays so."""
    ENDED = "ended"
    """It was revoked, archived, disabled or deleted since the backup, and stays so."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The record to write, and why."""

    outcome: Outcome
    value: bytes | None = None
    """None: nothing is written."""


_SAME, _NEWER = Merged(Outcome.SAME), Merged(Outcome.NEWER)


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What decides between two copies of a record, besides the copies."""

    backup_id: str
    lost: bool
    """Whether etcd has lost data since the backup."""
    revive: bool
    """Whether to bring back what was deleted or ended since."""
    at_seconds: int
    """Time of the restore, in seconds since the Unix epoch."""
    usage: UsageSince | None = None
    """Costs of requests; None: only spending in the backup is restored."""


def merge(name: str, saved: bytes, stored: bytes | None, rules: MergeRules) -> Merged:
    """Return what to do with a record.

    Args:
        name: of the record within the cluster.
        saved: its value in the backup.
        stored: its value in etcd; None: there is none.
        rules: what else decides.
    """
    prefix, _, rest = name.partition("/")
    lost, revive = rules.lost, rules.revive
    if prefix == "spending" and (lost or (stored is None and revive)):
        value = merge_spending(
            name, saved, stored, f"backup-{rules.backup_id}", rules.at_seconds, rules.usage
        )
        return _SAME if value == stored else Merged(Outcome.RESTORED, value)
    if stored is None:
        if prefix == "audit" and not lost:
            return _NEWER  # the oldest are deleted as new ones come
        if lost or revive or prefix == "uses":
            return Merged(Outcome.RESTORED, saved)
        return Merged(Outcome.DELETED)
    if stored == saved:
        return _SAME
    if prefix == "tenancy":
        return _record(rest, saved, stored, revive)
    if prefix == "audit" and "/" not in rest:
        return _audit_head(saved, stored)
    if prefix == "tenants" and lost:  # drawn anew since: KV has the keys of the old salt
        return Merged(Outcome.RESTORED, saved)
    return _NEWER


def new_epoch(random: str, epoch: str, revision: int) -> str:
    """Return the epoch of a restored directory, which tells what was restored."""
    return f"{random}:{epoch}@{revision}" if epoch else random


def is_lost(epoch: str, revision: int, saved_epoch: str, saved_revision: int) -> bool:
    """Return whether etcd has lost data since a backup; else it has lacked nothing since.

    Args:
        epoch: etcd's epoch; empty: none.
        revision: etcd's revision.
        saved_epoch: epoch in the backup.
        saved_revision: revision of the backup.
    """
    current, _, restored = epoch.partition(":")
    saved = saved_epoch.partition(":")[0]
    if not saved:
        return True
    if current == saved:
        return revision < saved_revision
    base, _, at = restored.rpartition("@")
    return not (base == saved and at.isdecimal() and int(at) >= saved_revision)


def _record(name: str, saved: bytes, stored: bytes, revive: bool) -> Merged:
    kind, _, ident = name.partition("/")
    try:
        before, now = parse(KINDS[kind], ident, saved), parse(KINDS[kind], ident, stored)
    except (KeyError, ValueError):
        return _NEWER  # of a later release, or damaged, which is for an operator to repair
    if now.version < before.version:
        return Merged(Outcome.RESTORED, saved)
    if now.version == before.version or not _ended(before, now):
        return _NEWER
    if not revive:
        return Merged(Outcome.ENDED)
    fields = msgspec.json.decode(saved)
    return Merged(Outcome.RESTORED, msgspec.json.encode({**fields, "version": now.version + 1}))


def _ended(before: Record, now: Record) -> bool:
    return any(getattr(now, end, 0) and not getattr(before, end, 0) for end in _ENDS)


def _audit_head(saved: bytes, stored: bytes) -> Merged:
    mine = msgspec.json.decode(saved, type=AuditHead).changes
    if mine > msgspec.json.decode(stored, type=AuditHead).changes:
        return Merged(Outcome.RESTORED, saved)
    return _NEWER
