"""Asks stores to prefetch hot prefixes before a worker needs them there.

A prefetch may be lost without harm, so none is retried: one that does not fit into the queue,
waited there for too long or failed is counted and dropped, and a store that failed is not asked for
a while. Prefetches leave the network to requests: few at a time, and a pause after each.
"""

import asyncio
import time
from collections.abc import Callable

from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.channel.pool import ChannelPool
from baton.settings import RouterPlacement
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.replication.hot_prefixes import PrefetchTask

log = get_logger(__name__)

MIN_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 16e6


class Prefetcher:
    """A bounded queue of prefetches, and the calls that `run` makes for them.

    One loop owns it. `submit` never blocks; settings bound what waits and runs. A prefetch is paced
    by a pause after it: two at a time take half of what a store was measured to fetch over gRPC.

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
        self._queue: asyncio.Queue[tuple[float, PrefetchTask]] = asyncio.Queue(
            settings.prefetch_queued
        )
        self._cooling_down: dict[str, float] = {}
        """Until when, by store."""
        self._channels = ChannelPool()

    def submit(self, task: PrefetchTask, now: float) -> None:
        """Queue a prefetch, or drop it where the queue is full."""
        try:
            self._queue.put_nowait((now, task))
        except asyncio.QueueFull:
            metrics.PREFETCHES.labels("dropped").inc()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        async with self._channels, asyncio.TaskGroup() as group:
            for _ in range(self._settings.prefetch_concurrent):
                group.create_task(self._work())

    async def _work(self) -> None:
        settings = self._settings
        while True:
            submitted, task = await self._queue.get()
            began = time.monotonic()
            self._cooling_down = {k: t for k, t in self._cooling_down.items() if t > began}
            # What was hot then need not be now.
            is_stale = began - submitted > settings.prefetch_stale_seconds
            if is_stale or task.store_id in self._cooling_down:
                metrics.PREFETCHES.labels("dropped").inc()
                continue
            blocks = await self._prefetch(task)
            if not blocks:
                self._cooling_down[task.store_id] = (
                    time.monotonic() + settings.store_cooldown_seconds
                )
            took = time.monotonic() - began
            paced = blocks * task.block_bytes / settings.prefetch_bytes_per_second
            await asyncio.sleep(max(0.0, paced - took))

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
            # Ends the calls of the other worker too, which share it.
            await self._channels.drop(address)
            return 0
        blocks = max(0, task.blocks - len(response.missing))
        metrics.PREFETCHES.labels("partial" if response.missing else "completed").inc()
        metrics.PREFETCHED_BLOCKS.inc(blocks)
        log.debug("router.prefetch.done", peer=task.store_id, blocks=blocks, requested=task.blocks)
        return blocks
