"""What was spent of budgets, as routers write it down: up to a second old."""

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
    """Of one budget, in one month, in nano-dollars."""

    spent: int = 0
    """What ended requests cost."""
    reserved: int = 0
    """For requests that run, and in chunks of frontends; what killed frontends had of both."""

    @classmethod
    def of(cls, record: SpendRecord) -> "Spent":
        """Return what a record says."""
        return cls(record.settled, record.charged - record.settled)


class Spending:
    """Reads what tenants, projects and keys spent that have a budget or alerts.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.

    Methods raise:
        EtcdError: etcd is away.
        ValueError: a record is none.
    """

    def __init__(self, etcd: Etcd, cluster: str, clock: Callable[[], float] = time.time) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._clock = clock

    async def of(self, subject: Subject, name: str) -> Spent:
        """Return what one of them spent this month."""
        month = month_of(self._clock())
        value = await self._etcd.get(keys.spent(self._cluster, month, subject, name))
        return Spent() if value is None else Spent.of(parse(value))

    async def all(self, subject: Subject) -> dict[str, Spent]:
        """Return what all of one kind spent this month, by their ids."""
        found: dict[str, Spent] = {}
        prefix = keys.spent(self._cluster, month_of(self._clock()), subject, "")
        async with aclosing(self._etcd.pages(prefix)) as pages:
            async for pairs, _ in pages:
                for key, value in pairs:
                    found[key.removeprefix(prefix)] = Spent.of(parse(value))
        return found
