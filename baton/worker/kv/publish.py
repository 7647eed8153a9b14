"""KV out: blocks that the engine finished go to the store."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

from baton.engine.base import BlockGoneError, Engine
from baton.errors import BatonError
from baton.kv.client.client import KvStoreClient, Reservation, StoreUnavailableError
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.kv.copy_threads import run_in_thread

# A batch is small, so that readers copy blocks out while the next ones are copied in, and large
# enough that its two round trips to the store cost little beside the copying.
BATCH_BYTES = 8 * 1024 * 1024
BATCH_BLOCKS = 64
# Batches in flight: one is copied while the reserve or commit of others is on the wire, which takes
# longer than to copy a batch of small blocks.
LANES = 4

log = get_logger(__name__)


@dataclass(slots=True)
class _Block:
    owner: "SequencePublish"
    index: int
    key: bytes
    partial: bool


class SequencePublish:
    """What one sequence still has to publish."""

    def __init__(self, sequence_id: int, tenant: str) -> None:
        self.sequence_id = sequence_id
        self.tenant = tenant
        self.bytes = 0
        self.copy_cpu_seconds = 0.0
        """Spent on copying and hashing."""
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def taken(self) -> None:
        self._open += 1
        self._idle.clear()

    def settled(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Return when every block is committed, or is known not to come."""
        await self._idle.wait()


class KvPublisher:
    """Puts the blocks of all sequences of one engine, in order, in batches.

    The queue is bounded by the engine's pages: a block waits at most once per sequence that holds
    it. A store that is away or full costs later requests time and nothing else. `prefill_rate`: the
    engine's prompt tokens per second, 0 while unknown.
    """

    def __init__(
        self,
        engine: Engine,
        store: KvStoreClient,
        io: Executor,
        prefill_rate: Callable[[], float],
    ) -> None:
        self._prefill_rate = prefill_rate
        self._engine = engine
        self._store = store
        self._io = io
        self._batch_blocks = max(1, min(BATCH_BLOCKS, BATCH_BYTES // engine.info.block_bytes))
        self._queue: deque[_Block] = deque()
        self._wake = asyncio.Event()

    def add(
        self, publishing: SequencePublish, first_index: int, keys: Sequence[bytes], *, partial: bool
    ) -> None:
        """Queue consecutive blocks of a sequence; `partial` says that the last one is not full."""
        last = len(keys) - 1
        for i, key in enumerate(keys):
            publishing.taken()
            block = _Block(publishing, first_index + i, key, partial=partial and i == last)
            self._queue.append(block)
        self._wake.set()

    def forget(self, publishing: SequencePublish) -> None:
        """Drop what waits of a sequence. What is being copied goes on: await `idle` after this."""
        kept = deque[_Block]()
        for block in self._queue:
            if block.owner is publishing:
                publishing.settled()
            else:
                kept.append(block)
        self._queue = kept

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as lanes:
            for _ in range(LANES):
                lanes.create_task(self._lane())

    async def _lane(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._publish(batch)
            finally:
                for block in batch:
                    block.owner.settled()

    def _next_batch(self) -> list[_Block]:
        # Only the last key of a reservation may name a partial block, and one tenant is charged.
        batch: list[_Block] = []
        while self._queue and len(batch) < self._batch_blocks:
            if batch and self._queue[0].owner.tenant != batch[0].owner.tenant:
                break
            batch.append(self._queue.popleft())
            if batch[-1].partial:
                break
        return batch

    async def _publish(self, batch: list[_Block]) -> None:
        """Put a batch into the store, and tell those who wait for it what does not come."""
        keys = [block.key for block in batch]
        there: Collection[int] = ()
        try:
            there = await self._put(batch, keys)
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.put.lost", blocks=len(batch), error=str(error))
        except Exception:
            # It costs these blocks and no more: who wants them computes them.
            log.exception("kv.put.failed", blocks=len(batch))
        lost = [key for index, key in enumerate(keys) if index not in there]
        if lost:
            metrics.BLOCKS_LOST.inc(len(lost))
            with suppress(StoreUnavailableError):
                await self._store.will_not_come(lost, self._engine.info.layout.layout_id)

    async def _put(self, batch: list[_Block], keys: Sequence[bytes]) -> Collection[int]:
        """Which blocks of a batch the store has now, by index.

        Raises:
            StoreUnavailableError: it cannot be reached.
            BatonError: it refused.
        """
        info = self._engine.info
        rate = self._prefill_rate()
        reservation = await self._store.reserve(
            keys,
            info.layout.layout_id,
            info.block_bytes,
            last_is_partial=batch[-1].partial,
            tenant=batch[0].owner.tenant,
            recompute_seconds=info.layout.block_tokens / rate if rate else 0.0,
        )
        try:
            if not reservation.slots:
                return reservation.present
            copied = await run_in_thread(self._io, self._copy, batch, reservation)
            readable = await reservation.commit(copied)
            if readable < len(copied):  # slots had lapsed, and it is not said which
                return reservation.present
            metrics.PUT_BYTES.inc(len(copied) * info.block_bytes)
            for index in copied:
                batch[index].owner.bytes += info.block_bytes
            return reservation.present.union(copied)
        finally:
            await reservation.aclose()

    def _copy(self, batch: list[_Block], reservation: Reservation) -> list[int]:
        copied = []
        for index, view in reservation.slots.items():
            block = batch[index]
            began = time.thread_time()
            try:
                self._engine.read_block(block.owner.sequence_id, block.index, view)
            except BlockGoneError:
                continue  # preempted: the store goes without it, for blocks are reported once
            reservation.seal(index)
            block.owner.copy_cpu_seconds += time.thread_time() - began
            copied.append(index)
        return copied
