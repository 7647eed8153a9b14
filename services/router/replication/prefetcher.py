"""Asks stores to prefetch hot prefixes before a worker needs them there: the calls alone."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channel.pool import ChannelPool
from baton.settings import RouterPlacement
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.replication.hot_prefixes import PrefetchTask
from services.router.replication.pacer import PrefetchPacer

log = get_logger(__name__)

MIN_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 16e6


class Prefetcher:
    """Makes the calls that a pacer says are due, while `run` runs. One loop owns it.

    Args:
        address_of: returns a store's address; None for one that is not in the cluster.
        settings: bounds and times of prefetches.
    """

    def __init__(
        self,
        address_of: Callable[[str], str | None],
        settings: RouterPlacement = RouterPlacement(),
    ) -> None:
        self._settings = settings
        self._address_of = address_of
        self._pacer = PrefetchPacer(settings)
        self._dropped = 0
        """Of those that the pacer dropped, those that were counted."""
        self._wake = asyncio.Event()
        self._channels = ChannelPool()

    def submit(self, task: PrefetchTask, now: float) -> None:
        """Queue a prefetch, or drop it where the queue is full. Never blocks."""
        self._pacer.submit(task, now)
        self._count_dropped()
        self._wake.set()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        async with self._channels, asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = time.monotonic()
                while (task := self._pacer.next(now)) is not None:
                    group.create_task(self._call(task))
                self._count_dropped()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pacer.wait_seconds(now)):
                        await self._wake.wait()

    def _count_dropped(self) -> None:
        metrics.PREFETCHES.labels("dropped").inc(self._pacer.dropped - self._dropped)
        self._dropped = self._pacer.dropped

    async def _call(self, task: PrefetchTask) -> None:
        blocks = 0
        try:
            blocks = await self._prefetch(task)
        finally:
            self._pacer.done(task, blocks, time.monotonic())
            self._wake.set()

    async def _prefetch(self, task: PrefetchTask) -> int:
        """Return how many of the blocks the store has now; 0 where the call failed."""
        address = self._address_of(task.store_id)
        sources = [
            pb.KvSource(store_id=store_id, address=at)
            for store_id in task.sources
            if (at := self._address_of(store_id))
        ]
        if address is None or not sources:
            metrics.PREFETCHES.labels("dropped").inc()
            return 0
        request = pb.PrefetchRequest(
            layout_id=task.layout_id, keys=task.keys, sources=sources, tenant=task.tenant
        )
        seconds = min(
            self._settings.prefetch_max_seconds,
            MIN_SECONDS + task.size_bytes / SLOWEST_BYTES_PER_SECOND,
        )
        stub = self._channels.get(address).stub(KvStoreServiceStub)
        try:
            response = await stub.Prefetch(request, timeout=seconds)
        except BatonError as error:
            metrics.PREFETCHES.labels("failed").inc()
            log.info("router.prefetch.failed", peer=task.store_id, error=error.code.name)
            # Ends the other calls on it too.
            await self._channels.drop(address)
            return 0
        blocks = max(0, task.blocks - len(response.missing))
        metrics.PREFETCHES.labels("partial" if response.missing else "completed").inc()
        metrics.PREFETCHED_BLOCKS.inc(blocks)
        log.debug("router.prefetch.done", peer=task.store_id, blocks=blocks, requested=task.blocks)
        return blocks
