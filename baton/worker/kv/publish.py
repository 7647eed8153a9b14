"""Publishing KV: blocks that the engine completed are written to the store."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

from baton.engine.base import BlockGoneError, Engine
from baton.errors import BatonError
from baton.internal.v1 import kvstore_pb2
from baton.kv.client.client import KvStoreClient, Reservation, StoreUnavailableError
from baton.kv.keys import KEY_BYTES, pack
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.kv.copy_threads import run_in_thread
from baton.worker.records import group_records

BATCH_BYTES = 8 * 1024 * 1024
"""A batch is small, so that readers copy blocks out while the next ones are copied in, and large
enough that its two round trips to the store cost little compared with the copying.
"""
BATCH_BLOCKS = 64
NO_KEY = bytes(KEY_BYTES)

log = get_logger(__name__)


@dataclass(slots=True)
class _BlockToPublish:
    owner: "SequencePublish"
    index: int
    key: bytes
    partial: bool
    group: int


class SequencePublish:
    """Blocks that one sequence has yet to publish. Owned by its stream, on the asyncio loop."""

    def __init__(self, sequence_id: int, tenant: str) -> None:
        self.sequence_id = sequence_id
        self.tenant = tenant
        self.bytes = 0
        self.chain_keys: Sequence[bytes] = ()
        """Keys of the sequence's blocks from the first on, for layouts with groups."""
        self.copy_cpu_seconds = 0.0
        """CPU seconds spent on copying and hashing."""
        self.on_done: Callable[[], None] = lambda: None
        """Called each time that no block is left to publish."""
        self._unfinished = 0
        self._done = asyncio.Event()
        self._done.set()

    def block_queued(self) -> None:
        """Count a block that waits to be published."""
        self._unfinished += 1
        self._done.clear()

    def block_done(self) -> None:
        """Count a block that is committed, or that will not be published."""
        self._unfinished -= 1
        if self._unfinished == 0:
            self._done.set()
            self.on_done()

    async def wait_done(self) -> None:
        """Return when every block is committed, or will not be published."""
        await self._done.wait()


class KvPublisher:
    """Publishes the blocks of all sequences of one engine to the store, in order and in batches.

    Lives on the asyncio loop; copies run in `io`. The queue is bounded by the engine's pages: a
    block waits at most once per sequence that holds it. A store that is unavailable or full only
    costs later requests time.

    Args:
        engine: the engine whose blocks are read.
        store: the store that receives them.
        io: the thread that copies.
        prefill_rate: returns the engine's prompt tokens per second, 0 while unknown.
        batches_in_flight: one is copied while the reserve or commit of others is on the wire, which
            takes longer than copying a batch of small blocks.
    """

    def __init__(
        self,
        engine: Engine,
        store: KvStoreClient,
        io: Executor,
        prefill_rate: Callable[[], float],
        batches_in_flight: int,
    ) -> None:
        self._engine = engine
        self._store = store
        self._io = io
        self._prefill_rate = prefill_rate
        self._batches_in_flight = batches_in_flight
        sizes = engine.info.object_bytes
        self._batch_blocks = [max(1, min(BATCH_BLOCKS, BATCH_BYTES // size)) for size in sizes]
        # Each block is hashed soon after it was copied, not once per requested block.
        self._blocks_per_copy = [engine.scratch.nbytes // size for size in sizes]
        self._queue: deque[_BlockToPublish] = deque()
        self._wake = asyncio.Event()

    def add(
        self,
        publishing: SequencePublish,
        first_index: int,
        keys: Sequence[bytes],
        *,
        partial: bool,
        group: int = 0,
    ) -> None:
        """Queue consecutive blocks of a sequence; `partial` means that the last one is not full."""
        last = len(keys) - 1
        for i, key in enumerate(keys):
            publishing.block_queued()
            not_full = partial and i == last
            block = _BlockToPublish(publishing, first_index + i, key, not_full, group)
            self._queue.append(block)
        self._wake.set()

    def cancel(self, publishing: SequencePublish) -> None:
        """Drop the queued blocks of a sequence; a copy in progress continues, see `wait_done`."""
        kept = deque[_BlockToPublish]()
        for block in self._queue:
            if block.owner is publishing:
                publishing.block_done()
            else:
                kept.append(block)
        self._queue = kept

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._batches_in_flight):
                tasks.create_task(self._publish_batches())

    async def _publish_batches(self) -> None:
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
                    block.owner.block_done()

    def _next_batch(self) -> list[_BlockToPublish]:
        # Only the last key of a reservation may name a partial block, one tenant is charged, and
        # objects of a group are of one size.
        batch: list[_BlockToPublish] = []
        while self._queue:
            block = self._queue[0]
            if len(batch) >= self._batch_blocks[block.group]:
                break
            if batch and (
                block.owner.tenant != batch[0].owner.tenant or block.group != batch[0].group
            ):
                break
            batch.append(self._queue.popleft())
            if batch[-1].partial:
                break
        return batch

    async def _publish(self, batch: list[_BlockToPublish]) -> None:
        """Write a batch to the store, and tell waiting readers which blocks will not come."""
        keys = [block.key for block in batch]
        stored: Collection[int] = ()
        try:
            stored = await self._put(batch, keys)
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.publish.refused", blocks=len(batch), error=str(error))
        except Exception:
            # Only these blocks are lost: they are recomputed where they are needed.
            log.exception("kv.publish.failed", blocks=len(batch))
        lost = [key for index, key in enumerate(keys) if index not in stored]
        if lost:
            metrics.BLOCKS_LOST.inc(len(lost))
            with suppress(StoreUnavailableError):
                layout_id = self._engine.info.layout.layout_id
                await self._store.will_not_come(lost, layout_id, batch[0].group)

    async def _put(self, batch: list[_BlockToPublish], keys: Sequence[bytes]) -> Collection[int]:
        """Write a batch, and return the indexes of the blocks that the store now holds.

        Raises:
            StoreUnavailableError: the store cannot be reached.
            BatonError: the store rejected the request.
        """
        info, group = self._engine.info, batch[0].group
        size = info.object_bytes[group]
        rate = self._prefill_rate()
        reservation = await self._store.reserve(
            keys,
            info.layout.layout_id,
            size,
            last_is_partial=batch[-1].partial,
            tenant=batch[0].owner.tenant,
            recompute_seconds=info.layout.block_tokens / rate if rate else 0.0,
            group=group,
            chain=self._chain(batch) if info.layout.groups else None,
        )
        try:
            if not reservation.slots:
                return reservation.present
            copied = await run_in_thread(self._io, self._copy, batch, reservation)
            readable = await reservation.commit(copied)
            if readable < len(copied):  # slots had expired, and it is unknown which
                return reservation.present
            metrics.PUT_BYTES.inc(len(copied) * size)
            for index in copied:
                batch[index].owner.bytes += size
            return reservation.present.union(copied)
        finally:
            await reservation.aclose()

    def _chain(self, batch: Sequence[_BlockToPublish]) -> kvstore_pb2.BlockChain:
        """Return where a batch's blocks are in their chains."""
        layout = self._engine.info.layout
        at = [(block.owner.chain_keys, block.index) for block in batch]
        return kvstore_pb2.BlockChain(
            groups=group_records(layout),
            block_tokens=layout.block_tokens,
            blocks=[index for _, index in at],
            previous=pack([keys[index - 1] if index else NO_KEY for keys, index in at]),
        )

    def _copy(self, batch: list[_BlockToPublish], reservation: Reservation) -> list[int]:
        """Copy and seal the blocks that have a slot; return their indexes in the batch."""
        copied = []
        group = batch[0].group
        for run in _runs(batch, list(reservation.slots), self._blocks_per_copy[group]):
            owner = batch[run[0]].owner
            blocks = [batch[index].index for index in run]
            slots = [reservation.slots[index] for index in run]
            began = time.thread_time()
            there = run
            try:
                self._engine.read_blocks(owner.sequence_id, blocks, slots, group)
            except BlockGoneError:
                there = [index for index in run if self._copy_one(batch, index, reservation)]
                gone = len(run) - len(there)
                log.info("kv.publish.gone", sequence=owner.sequence_id, blocks=gone)
            for index in there:
                reservation.seal(index)
            owner.copy_cpu_seconds += time.thread_time() - began
            copied.extend(there)
        return copied

    def _copy_one(self, batch: list[_BlockToPublish], index: int, reservation: Reservation) -> bool:
        """Copy one block; return False if its sequence no longer holds it.

        A block is reported ready only once, so the store does without it then.
        """
        block = batch[index]
        try:
            slot = reservation.slots[index]
            self._engine.read_blocks(block.owner.sequence_id, [block.index], [slot], block.group)
        except BlockGoneError:
            return False
        return True


def _runs(
    batch: Sequence[_BlockToPublish], indexes: Iterable[int], longest: int
) -> list[list[int]]:
    """Group indexes of a batch into runs of one sequence's consecutive blocks."""
    runs: list[list[int]] = []
    for index in indexes:
        block = batch[index]
        last = batch[runs[-1][-1]] if runs else None
        if (
            last is not None
            and len(runs[-1]) < longest
            and block.owner is last.owner
            and block.index == last.index + 1
        ):
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs
