"""Reads and writes that a router has to do for the budgets that it owns, and their results."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from baton.tenancy.limits.budget.account import Account
from baton.tenancy.limits.budget.record import SpendRecord, encode, parse
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import LimitId


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """A record to write if etcd still holds the known version of it."""

    limit_id: LimitId
    account: Account
    known: bytes | None
    record: SpendRecord
    value: bytes
    """The new record, as stored in etcd."""

    def marked(self, alerts: tuple[str, ...]) -> "LedgerWrite":
        """Return a copy in which these alerts are marked as crossed."""
        record = msgspec.structs.replace(self.record, alerts=alerts)
        return LedgerWrite(self.limit_id, self.account, self.known, record, encode(record))


class Ledger:
    """Keeps the records of a router's budgets. Pure; one per router.

    A record is written with compare-and-swap against the version last read or written. So if two
    routers both believe that they own a budget, one detects it, loads what the other wrote, and
    grants nothing for a while.

    Args:
        router: its incarnation.
        owner: owner of the budgets.
    """

    def __init__(self, router: str, owner: LimitOwner) -> None:
        self._router = router
        self._owner = owner
        self._known: dict[LimitId, bytes | None] = {}
        self._lost: dict[LimitId, Account] = {}
        """Accounts now owned by another router, with unwritten charges."""
        self._unreadable: set[LimitId] = set()
        self._successors: dict[LimitId, str] = {}
        """Routers that wrote these records: a record keeps its owner."""

    def move_to(self, owner: LimitOwner) -> None:
        """Switch to another owner, which is empty: all budgets now belong to other routers."""
        for limit_id, account in self._owner.accounts.items():
            self._lose(limit_id, account)
        self._owner = owner

    @property
    def has_unread(self) -> bool:
        """Whether there are records to read."""
        return bool(self._owner.unread)

    @property
    def has_unwritten(self) -> bool:
        """Whether there are records to write."""
        return bool(self._owner.unwritten or self._lost)

    def unread(self, most: int) -> list[LimitId]:
        """Return budgets whose records must be read."""
        return list(islice(self._owner.unread, most))

    def was_read(self, limit_id: LimitId, value: bytes | None) -> None:
        """Load a record; None: there is none.

        Raises:
            ValueError: it is not a record.
        """
        account = self._owner.accounts.get(limit_id)
        if account is not None:
            account.load(None if value is None else parse(value))
            self._known[limit_id] = value
            self._owner.unwritten.setdefault(limit_id)
        self._owner.unread.pop(limit_id, None)

    def give_up(self) -> None:
        """Stop owning budgets that now belong to another router, keeping their unwritten
        charges."""
        for limit_id, account in self._owner.lost_accounts().items():
            self._lose(limit_id, account)

    def unwritten(self, most: int) -> list[LedgerWrite]:
        """Return records that must be written."""
        writes: list[LedgerWrite] = []
        for limit_id, account in self._dirty():
            if len(writes) == most:
                break
            router = self._router
            if self._lost.get(limit_id) is account:
                router = self._successors.get(limit_id, "")
            record = account.record(router, self._owner.roll_call.alive)
            known = self._known.get(limit_id)
            writes.append(LedgerWrite(limit_id, account, known, record, encode(record)))
        return writes

    def accepted(self, write: LedgerWrite) -> None:
        """Note that a record was written."""
        self._known[write.limit_id] = write.value
        write.account.written(write.record)
        if self._lost.get(write.limit_id) is write.account:
            self._forget(write.limit_id)
            return
        self._owner.unwritten.pop(write.limit_id, None)
        if write.account.dirty and self._owner.accounts.get(write.limit_id) is write.account:
            self._owner.unwritten[write.limit_id] = None  # at the end of the queue

    def refused(self, write: LedgerWrite, value: bytes | None, now: float) -> SpendRecord | None:
        """Load and return the record that was written instead, by another router or by this one.

        Raises:
            ValueError: it is not a record.
        """
        record = None if value is None else parse(value)
        if record is not None and record.owner not in ("", self._router):
            if self._lost.get(write.limit_id) is write.account:
                self._successors[write.limit_id] = record.owner
                if not write.account.charges.adds_to(record):
                    self._forget(write.limit_id)
                    return record
            else:
                write.account.depose(now)
        write.account.load(record)
        self._known[write.limit_id] = value
        return record

    def pass_over(self, limit_id: LimitId) -> None:
        """Skip a record that cannot be read; its budget is treated as if etcd were unavailable."""
        self._owner.unread.pop(limit_id, None)
        self._unreadable.add(limit_id)

    def read_again(self) -> None:
        """Read skipped records again: they may have been repaired."""
        self._owner.unread |= dict.fromkeys(self._unreadable & self._owner.accounts.keys())
        self._unreadable.clear()

    def sweep(self) -> None:
        """Forget the records of budgets that the owner has forgotten."""
        kept = self._owner.accounts.keys() | self._lost.keys()
        self._known = {one: value for one, value in self._known.items() if one in kept}

    def _dirty(self) -> Iterator[tuple[LimitId, Account]]:
        yield from list(self._lost.items())
        for limit_id in list(self._owner.unwritten):
            account = self._owner.accounts[limit_id]
            if account.loaded and limit_id not in self._lost:
                yield limit_id, account

    def _lose(self, limit_id: LimitId, account: Account) -> None:
        if account.dirty and account.loaded:
            self._lost[limit_id] = account
        else:
            self._known.pop(limit_id, None)

    def _forget(self, limit_id: LimitId) -> None:
        self._lost.pop(limit_id, None)
        self._successors.pop(limit_id, None)
        if limit_id not in self._owner.accounts:
            self._known.pop(limit_id, None)
