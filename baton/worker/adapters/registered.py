"""Follows the adapters registered in the cluster: those of the worker's model, once checked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.follow import follow
from baton.engine.lora.adapter import Adapter, read_adapter
from baton.engine.lora.config import AdapterError
from baton.engine.lora.limits import AdapterLimits
from baton.telemetry.logs import get_logger
from baton.tenancy.records.adapters import AdapterRecord
from baton.tenancy.records.tenants import parse
from baton.worker import metrics
from baton.worker.adapters.downloads import AdapterDownloads
from baton.worker.adapters.known import KnownAdapters
from baton.worker.adapters.resident import ResidentAdapters

RETRY_SECONDS = 10.0
"""Interval at which adapters that could not be read are tried again."""

log = get_logger(__name__)


class RegisteredAdapters:
    """A `baton.cluster.follow.Listener` of adapters' records. Lives on the event loop.

    Each adapter of the model is read and compared with its record on the thread of `resident`
    before it is known. One that cannot be used is left out, and tried again. Those that are
    downloaded do not delay the others.

    Args:
        model: the worker's model.
        limits: of its engine.
        known: the adapters that can be served.
        resident: the adapters in memory.
        downloads: have adapters' files here.
    """

    def __init__(
        self,
        model: str,
        limits: AdapterLimits,
        known: KnownAdapters,
        resident: ResidentAdapters,
        downloads: AdapterDownloads,
    ) -> None:
        self._model = model
        self._limits = limits
        self._known = known
        self._resident = resident
        self._downloads = downloads
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By adapter: what compares it with its record."""
        self._records: dict[str, AdapterRecord] = {}
        self._failed: dict[str, AdapterRecord] = {}
        """Records that could not be used at the last attempt."""
        self._changed = asyncio.Event()

    async def run(
        self, etcd: Etcd, cluster: str, on_changed: Callable[[], Awaitable[None]]
    ) -> None:
        """Keep `known` up to date until cancelled.

        Args:
            etcd: the connection.
            cluster: the cluster's name.
            on_changed: called after each change of what is known.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(etcd, keys.adapters(cluster), self))
            group.create_task(self._apply(group, on_changed))

    def begin(self, revision: int) -> None:
        """Start a full list; what is not in it stays: an etcd without its data removes none."""

    def take(self, name: str, value: bytes) -> None:
        try:
            record = parse(AdapterRecord, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        self._records[name] = record
        self._changed.set()

    def end(self) -> None:
        self._changed.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._records.pop(name, None)
            self._changed.set()
        else:
            self.take(name, value)

    def _wanted(self) -> Mapping[str, AdapterRecord]:
        return {
            name: record
            for name, record in self._records.items()
            if record.base == self._model and not self._known.is_fixed(name)
        }

    async def _apply(
        self, group: asyncio.TaskGroup, on_changed: Callable[[], Awaitable[None]]
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._failed else None):
                    await self._changed.wait()
            except TimeoutError:
                self._failed.clear()
            self._changed.clear()
            if await self._remove():
                await on_changed()
            for name, record in self._wanted().items():
                known = name in self._known.current or self._failed.get(name) == record
                if not known and name not in self._reading:
                    task = group.create_task(self._add(record, on_changed))
                    self._reading[name] = task

    async def _remove(self) -> bool:
        """Remove what the records no longer name; return whether there was any."""
        changed, wanted = False, self._wanted()
        for name, known in list(self._known.current.items()):
            record = wanted.get(name)
            if not self._known.is_fixed(name) and (
                record is None or record.digest != known.digest.hex()
            ):
                self._known.drop(name)
                await self._resident.drop(known.key)
                log.info("worker.adapter.removed", adapter=name, digest=known.digest.hex())
                changed = True
        return changed

    async def _add(self, record: AdapterRecord, on_changed: Callable[[], Awaitable[None]]) -> None:
        name = record.id
        try:
            adapter = await self._read(record)
        except AdapterError as error:
            self._failed[name] = record
            metrics.ADAPTER_FAILURES.inc()
            log.warning("worker.adapter.refused", adapter=name, error=str(error))
        else:
            self._failed.pop(name, None)
            if self._wanted().get(name) == record:  # it was not replaced or removed meanwhile
                self._known.put(adapter)
                log.info("worker.adapter.added", adapter=name, digest=record.digest)
                await on_changed()
        finally:
            del self._reading[name]
            self._changed.set()

    async def _read(self, record: AdapterRecord) -> Adapter:
        loop = asyncio.get_running_loop()
        with await self._downloads.fetch(record.location, self._limits) as held:
            read = partial(read_adapter, record.id, held.directory, self._limits)
            adapter = await loop.run_in_executor(self._resident.thread, read)
        if adapter.digest.hex() != record.digest:
            raise AdapterError(
                f"the files in {record.location} are not those that were registered: register the "
                "adapter again"
            )
        return (
            adapter
            if record.location.startswith("/")
            else replace(adapter, location=record.location)
        )
