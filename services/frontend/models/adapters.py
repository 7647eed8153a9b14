"""The registered adapters, from their records in etcd: which names are known without workers."""

import asyncio

from baton.telemetry.logs import get_logger
from baton.tenancy.records.adapters import AdapterRecord
from baton.tenancy.records.tenants import parse

log = get_logger(__name__)


class AdapterRecords:
    """A `baton.cluster.follow.Listener` of adapters. Lives on the event loop.

    What is not listed stays, so that an etcd that lost its data changes nothing.
    """

    def __init__(self) -> None:
        self._records: dict[str, AdapterRecord] = {}
        self._synced = asyncio.Event()

    def base(self, name: str) -> str | None:
        """Return the model of an adapter; empty: it was removed; None: it never was registered."""
        record = self._records.get(name)
        return None if record is None else record.base

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self._synced.wait()

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            self._records[name] = parse(AdapterRecord, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))

    def end(self) -> None:
        self._synced.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._records.pop(name, None)
        else:
            self.take(name, value)
