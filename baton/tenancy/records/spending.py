"""Spending of budgets, as recorded by routers: up to a second old."""

import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.budget.record import SpendRecord, parse
from baton.tenancy.limits.spec import Subject


@dataclass(frozen=True, slots=True)
class Spent:
    """Spending of one budget in one month, in nano-dollars."""

    spent: int = 0
    """Cost of ended requests."""
    reserved: int = 0
    """Reserved for running requests, and in chunks of frontends; including both of killed
    frontends."""

    @classmethod
    def of(cls, record: SpendRecord) -> "Spent":
        """Return the spending in a record."""
        return cls(record.settled, record.charged - record.settled)


class Spending:
    """Reads the spending of tenants, projects and keys that have a budget or alerts.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.

    Methods raise:
        EtcdError: etcd is unavailable.
        ValueError: a record is invalid.
    """

    def __init__(self, etcd: Etcd, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._clock = clock

    async def of(self, subject: Subject, name: str) -> Spent:
        """Return this month's spending of one subject."""
        month = month_of(self._clock())
        value = await self._etcd.get(keys.spent(self._cluster, month, subject, name))
        return Spent() if value is None else Spent.of(parse(value))

    async def all(self, subject: Subject) -> dict[str, Spent]:
        """Return this month's spending of all subjects of one kind, by ID."""
        found: dict[str, Spent] = {}
        prefix = keys.spent(self._cluster, month_of(self._clock()), subject, "")
        async with aclosing(self._etcd.pages(prefix)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    found[key.removeprefix(prefix)] = Spent.of(parse(value))
        return found
