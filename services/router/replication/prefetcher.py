"""Tells stores what to pull: hot prefixes spread before a worker asks for them.

A hint may be lost without harm, so nothing is tried twice: what does not fit into the queue, waited
there for too long or failed is counted and forgotten, and a store that failed is left alone for a
while. Pulls leave the network to readers: few at a time, and a pause after each.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc

from baton.internal.v1 import kvstore_pb2 as pb
from baton.internal.v1.kvstore_pb2_grpc import KvStoreServiceStub
from baton.rpc.cancelled import task_is_cancelled
from baton.rpc.channels import ChannelPool
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.replication.hot_prefixes import Hint

log = get_logger(__name__)

MAX_HINTS = 64
"""Hints that wait; one more is dropped."""
MAX_PULLS = 2
"""At a time, of this router."""
STALE_SECONDS = 5.0
"""A hint that waited longer is dropped: what was hot then need not be now."""
LEAVE_ALONE_SECONDS = 30.0
"""A store that failed, or pulled nothing, is told nothing for so long."""
BYTES_PER_SECOND = 256e6
"""Of one pull and the pause after it; two at a time take half of what a store was measured to bring
over gRPC."""
MIN_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 16e6
MAX_SECONDS = 60.0


class HintSender:
    """See the module's text. `run` does the work.

    Args:
        address_of: where a store answers; None for one that is gone.
    """

    def __init__(self, address_of: Callable[[str], str | None]) -> None:
        self._address_of = address_of
        self._waiting: asyncio.Queue[tuple[float, Hint]] = asyncio.Queue(MAX_HINTS)
        self._left_alone: dict[str, float] = {}
        """Until when, by store."""
        self._channels = ChannelPool()

    def offer(self, hint: Hint) -> None:
        """Send a hint some time soon, or drop it."""
        try:
            self._waiting.put_nowait((time.monotonic(), hint))
        except asyncio.QueueFull:
            metrics.HINTS.labels("dropped").inc()

    async def run(self) -> None:
        """Send what is offered, until cancelled."""
        async with self._channels, asyncio.TaskGroup() as group:
            for _ in range(MAX_PULLS):
                group.create_task(self._send_each())

    async def _send_each(self) -> None:
        while True:
            offered, hint = await self._waiting.get()
            began = time.monotonic()
            self._left_alone = {k: until for k, until in self._left_alone.items() if until > began}
            if began - offered > STALE_SECONDS or hint.store_id in self._left_alone:
                metrics.HINTS.labels("dropped").inc()
                continue
            came = await self._pull(hint)
            if not came:
                self._left_alone[hint.store_id] = time.monotonic() + LEAVE_ALONE_SECONDS
            took = time.monotonic() - began
            await asyncio.sleep(max(0.0, came * hint.block_bytes / BYTES_PER_SECOND - took))

    async def _pull(self, hint: Hint) -> int:
        """How many blocks the store has of it now; 0 where the call failed."""
        address = self._address_of(hint.store_id)
        sources = [
            pb.KvSource(store_id=store_id, address=at)
            for store_id in hint.sources
            if (at := self._address_of(store_id))
        ]
        if address is None or not sources:
            metrics.HINTS.labels("dropped").inc()
            return 0
        request = pb.PrefetchRequest(
            layout_id=hint.layout_id, keys=hint.keys, sources=sources, tenant=hint.tenant
        )
        seconds = min(MAX_SECONDS, MIN_SECONDS + hint.size_bytes / SLOWEST_BYTES_PER_SECOND)
        stub: Any = KvStoreServiceStub(self._channels.get(address))
        call = stub.Prefetch(request, timeout=seconds)
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            metrics.HINTS.labels("failed").inc()
            log.info("not pulled", instance_id=hint.store_id, error=error.code().name)
            await self._channels.drop(address)
            return 0
        except asyncio.CancelledError:
            if task_is_cancelled():
                raise
            # The other lane dropped the channel that they share, which cancels its calls.
            metrics.HINTS.labels("failed").inc()
            return 0
        finally:
            call.cancel()
        came = max(0, hint.blocks - len(answer.missing))
        metrics.HINTS.labels("partial" if answer.missing else "pulled").inc()
        metrics.HINTED_BLOCKS.inc(came)
        log.debug("pulled", instance_id=hint.store_id, blocks=came, asked=hint.blocks)
        return came
