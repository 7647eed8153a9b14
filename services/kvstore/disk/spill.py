"""Writes objects that are next to be evicted to disk, shortly before their space is needed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from baton.process.io_thread import IoThread
from services.kvstore.disk.context import MAX_JOB_BYTES, DiskContext
from services.kvstore.disk.file import Record
from services.kvstore.disk.index import DiskEntry
from services.kvstore.memory.slot import Lease, SlotState

HEADROOM_PART = 8
"""Divisor of the memory that is kept empty: one part in this many."""
MAX_HEADROOM_BYTES = 64 * 1024 * 1024


@dataclass(eq=False, slots=True)
class _Write:
    lease: Lease
    rank: float
    """Rank of the slot when it was chosen: a different one means that it was used since."""
    entry: DiskEntry
    record: Record
    wrong: bool = False
    error: Exception | None = None


class Spiller:
    """Spills objects, a batch at a time, on one thread.

    Owned by DiskTier, on the event loop, which places objects; the thread checks and writes each
    batch in one run. Bounded by one batch.

    Args:
        context: memory and disk.
        ended: called after each batch with its first error and the time.
    """

    def __init__(
        self, context: DiskContext, ended: Callable[[Exception | None, float], None]
    ) -> None:
        self.thread = IoThread("kv-disk-write")
        self.busy_since: float | None = None
        self._context = context
        self._ended = ended
        data_bytes = context.arena.header.data_bytes
        self._headroom = min(MAX_HEADROOM_BYTES, data_bytes // HEADROOM_PART)

    def begin(self, now: float) -> None:
        """Begin a batch, if there is something to write and no batch is in progress."""
        if self.busy_since is not None:
            return
        batch = self._choose(now)
        index = self._context.index
        cleared, index.cleared = index.cleared, []
        erased, index.erased = index.erased, []
        if batch or cleared:
            self.busy_since = now
            self.thread.submit(lambda: self._write(batch, cleared, erased))

    def _choose(self, now: float) -> list[_Write]:
        table, index = self._context.table, self._context.index
        batch: list[_Write] = []
        size = 0
        while size < MAX_JOB_BYTES and table.free_bytes + size < self._headroom:
            slot = table.policy.coldest()
            if slot is None:
                break
            if slot.partial or slot.unneeded or slot.object_id in index:
                table.evict(slot)
                continue
            lease = table.lease(slot.object_id, now, use=False)
            if not isinstance(lease, Lease):
                break
            placed = index.place(slot)
            if placed is None:
                table.release(lease)
                table.evict(slot)
                continue
            batch.append(_Write(lease, slot.rank, *placed))
            size += slot.slot_bytes
        return batch

    def _write(
        self,
        batch: list[_Write],
        cleared: Iterable[int],
        erased: Iterable[tuple[int, int]],
    ) -> Callable[[], None]:
        """Write a batch, on the thread."""
        file, arena = self._context.file, self._context.arena
        unclear: Exception | None = None
        try:
            for offset in cleared:
                file.clear(offset)
            for offset, size in erased:
                file.erase(offset, size)
        except Exception as error:  # noqa: BLE001  # reported below: the thread must continue
            # Nothing may overwrite slots whose records were not cleared: digests still detect them.
            unclear = error
        for write in batch:
            slot = write.lease.slot
            try:
                if unclear is not None:
                    raise unclear
                if self._context.is_right(slot.object_id, slot.digest, arena.view(slot)):
                    file.write(write.record, arena.pages(slot))
                else:
                    write.wrong = True
            except Exception as error:  # noqa: BLE001
                write.error = error
        return lambda: self._written(batch, unclear)

    def _written(self, batch: list[_Write], failed: Exception | None) -> None:
        self.busy_since = None
        index, counts = self._context.index, self._context.counts
        for write in batch:
            entry, lease = write.entry, write.lease
            # The place of an expired lease may have been overwritten meanwhile.
            good = lease.live and write.error is None and not write.wrong and entry.held
            good = good and lease.slot.state is SlotState.COMMITTED  # else it was dropped meanwhile
            if good:
                counts.written_bytes += entry.object_bytes
                index.written(entry)
            elif entry.held:
                index.drop(entry)
            if write.wrong and lease.live:
                counts.bad_objects += 1
                self._context.table.report_bad(lease)
            else:
                self._let_go(write)
        first = failed or next((w.error for w in batch if w.error is not None), None)
        self._ended(first, self._context.clock())

    def _let_go(self, write: _Write) -> None:
        """Evict the object from memory, unless it was used meanwhile."""
        slot = write.lease.slot
        unused = slot.leases == 1 and slot.rank == write.rank
        self._context.table.release(write.lease)
        if slot.state is SlotState.COMMITTED and unused:
            self._context.table.evict(slot)
