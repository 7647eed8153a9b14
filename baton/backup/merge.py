"""What a restore does with one record: which of two copies stays. Pure.

Of two copies of a record, the one with more changes stays, as where etcd has lost its data
(ADR 26). A record that etcd does not have was lost with its data, or deleted since the backup:
`lost` tells.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from baton.tenancy.limits.budget import record as spending
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord
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


def merge(
    name: str, saved: bytes, stored: bytes | None, *, lost: bool, revive: bool, backup_id: str
) -> Merged:
    """Return what to do with a record.

    Args:
        name: of the record within the cluster.
        saved: its value in the backup.
        stored: its value in etcd; None: there is none.
        lost: whether etcd has lost data since the backup.
        revive: whether to bring back what was deleted or ended since.
        backup_id: ID of the backup.
    """
    prefix, _, rest = name.partition("/")
    if prefix == "spending":
        return _spending(saved, stored, lost, revive, backup_id)
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


def _spending(
    saved: bytes, stored: bytes | None, lost: bool, revive: bool, backup_id: str
) -> Merged:
    """Return the charges of both records; those that the backup has as a sum, under its own name,
    so that another restore does not add them again."""
    if not lost and not (stored is None and revive):
        return _NEWER if stored is not None else Merged(Outcome.DELETED)
    try:
        mine = spending.parse(saved)
        theirs = SpendRecord("") if stored is None else spending.parse(stored)
    except ValueError:
        return _NEWER if stored is not None else Merged(Outcome.RESTORED, saved)
    charges = dict(mine.frontends)
    if mine.folded_charged or mine.folded_settled:
        folded = FrontendCharge(1, mine.folded_charged, mine.folded_settled)
        charges[f"backup-{backup_id}"] = folded
    for frontend, charge in theirs.frontends.items():
        known = charges.get(frontend)
        if known is None or (charge.term, charge.settled) >= (known.term, known.settled):
            charges[frontend] = charge
    merged = SpendRecord(
        "",  # no router's: the owner takes it in, and does not take it for another owner's
        charges,
        theirs.folded_charged,
        theirs.folded_settled,
        tuple(dict.fromkeys((*mine.alerts, *theirs.alerts))),
    )
    value = spending.encode(merged)
    same = (
        stored is not None and spending.encode(msgspec.structs.replace(theirs, owner="")) == value
    )
    return _SAME if same else Merged(Outcome.RESTORED, value)
