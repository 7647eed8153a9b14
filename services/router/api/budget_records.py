"""Reads and writes the records of the budgets that this router owns, outside of all requests."""

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.telemetry.logs import get_logger
from baton.tenancy.limits.budget.ledger import Ledger, LedgerWrite
from baton.tenancy.limits.budget.month import months_before
from baton.tenancy.limits.spec import LimitId
from services.router.api.spend_alerts import SpendAlerts
from services.router.metrics import UNWRITTEN_BUDGETS

WRITE_SECONDS = 1.0
KEPT_MONTHS = 13
"""Months that records of a budget are kept after its last use."""
_BATCH = 64
_MOST = 1024
"""Most records written per second."""
_RETRY_SECONDS = 0.2
_READ_AGAIN = 10
"""Number of writes after which unreadable records are read again."""
_FLUSH_SECONDS = 2.0

log = get_logger(__name__)


class BudgetRecords:
    """Synchronizes a `Ledger` with etcd: reads missing records, writes changes each second.

    Lives on the event loop. While etcd is unavailable routers continue with what they know, and
    changes wait in the ledger, one record per budget.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        ledger: the ledger to fill and to persist.
        on_read: called when records were read.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        ledger: Ledger,
        on_read: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._alerts = SpendAlerts(etcd, cluster)
        self._ledger = ledger
        self._on_read = on_read
        self._clock = clock
        self._unread = asyncio.Event()
        self._is_away = False

    def wake(self) -> None:
        """Read missing records now."""
        self._unread.set()

    async def keep_reading(self) -> None:
        """Read records as they are needed, until cancelled."""
        while True:
            await self._unread.wait()
            self._unread.clear()
            try:
                await self.read()
                self._away(None)
            except EtcdError as error:
                self._away(error)
                self._unread.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def keep_writing(self) -> None:
        """Write changed records every second, until cancelled."""
        for number in itertools.count(1):
            await asyncio.sleep(WRITE_SECONDS)
            if number % _READ_AGAIN == 0:
                self._ledger.read_again()
                self.wake()
            if self._ledger.has_unwritten:
                try:
                    await self.write()
                    self._away(None)
                except EtcdError as error:
                    self._away(error)

    async def flush(self) -> None:
        """Write all changed records within two seconds: this router stops."""
        with suppress(EtcdError, TimeoutError):
            async with asyncio.timeout(_FLUSH_SECONDS):
                while self._ledger.has_unwritten:
                    await self.write()

    async def read(self) -> None:
        """Read all missing records.

        Raises:
            EtcdError: etcd is unavailable.
        """
        while missing := self._ledger.unread(_BATCH):
            found = await self._etcd.get_all([self._key(one) for one in missing])
            for limit_id in missing:
                value = found.get(self._key(limit_id))
                try:
                    self._ledger.was_read(limit_id, value)
                except ValueError as error:
                    self._unreadable(limit_id, error)
                    self._ledger.pass_over(limit_id)
            self._on_read()

    async def write(self) -> None:
        """Write changed records, up to 1,024.

        Raises:
            EtcdError: etcd is unavailable.
        """
        writes = self._ledger.unwritten(_MOST)
        UNWRITTEN_BUDGETS.set(len(writes))
        for begin in range(0, len(writes), _BATCH):
            batch = await self._alerts.mark(writes[begin : begin + _BATCH])
            if await self._put(batch):
                for write in batch:
                    self._accepted(write)
            else:  # one of the records differs from what was known
                for write in batch:
                    if await self._put([write]):
                        self._accepted(write)
                    else:
                        await self._refused(write)
        UNWRITTEN_BUDGETS.set(0)

    async def _put(self, writes: Sequence[LedgerWrite]) -> bool:
        known = [(self._key(write.limit_id), write.known) for write in writes]
        pairs = [(self._key(write.limit_id), write.value) for write in writes]
        new = [write.limit_id for write in writes if write.known is None]
        old = [one._replace(month=months_before(one.month, KEPT_MONTHS)) for one in new]
        return await self._etcd.replace_all(known, pairs, [self._key(one) for one in old])

    def _accepted(self, write: LedgerWrite) -> None:
        self._ledger.accepted(write)
        self._alerts.written(write.limit_id, write.record)

    async def _refused(self, write: LedgerWrite) -> None:
        """Adopt the stored record: another router's, or this one's whose response was lost."""
        value = await self._etcd.get(self._key(write.limit_id))
        try:
            record = self._ledger.refused(write, value, self._clock())
        except ValueError as error:
            self._unreadable(write.limit_id, error)
            return
        if record is not None:
            self._alerts.written(write.limit_id, record)

    def _away(self, error: EtcdError | None) -> None:
        """Log once that etcd does not respond, and once that it does again."""
        if error is not None and not self._is_away:
            log.warning("budget.records.etcd_unavailable", error=str(error))
        if error is None and self._is_away:
            log.info("budget.records.etcd_recovered")
        self._is_away = error is not None

    def _unreadable(self, limit_id: LimitId, error: ValueError) -> None:
        log.error("budget.record.unreadable", etcd_key=self._key(limit_id), error=str(error))

    def _key(self, limit_id: LimitId) -> str:
        return keys.spent(self._cluster, limit_id.month, limit_id.subject, limit_id.name)
