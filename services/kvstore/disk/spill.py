"""Writes what is evicted next to disk, a little before its room is needed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.kvstore.disk.codecs import AS_IT_IS
from services.kvstore.disk.context import MAX_JOB_BYTES, DiskContext, Scratch
from services.kvstore.disk.file import Record
from services.kvstore.disk.index import DiskEntry, disk_size
from services.kvstore.disk.io_thread import IoThread
from services.kvstore.memory.slot import Lease, State

HEADROOM_PART = 8
"""Memory is kept this part emptier than full."""
MAX_HEADROOM_BYTES = 64 * 1024 * 1024


@dataclass(eq=False, slots=True)
class _Move:
    lease: Lease
    rank: float
    """Of the slot when it was chosen: another one means that somebody used it since."""
    wrong: bool = False
    encoded: bytes | None = None
    """None: it is written as it is."""
    error: Exception | None = None


@dataclass(eq=False, slots=True)
class _Write:
    move: _Move
    entry: DiskEntry
    record: Record
    error: Exception | None = None


class Spiller:
    """Spills objects, a batch at a time, on one thread.

    Owned by DiskTier, on the event loop. Two turns of the thread for each batch: it checks and
    encodes the objects, the event loop places them, and the thread writes them. Bounded: one batch.

    Args:
        context: memory and disk.
        ended: called after each batch with its first error and the time.
    """

    def __init__(
        self, context: DiskContext, ended: Callable[[Exception | None, float], None]
    ) -> None:
        self.thread = IoThread("kv-disk-write")
        self.busy_since: float | None = None
        self.stopped = False
        """Nothing is placed on disk any more."""
        self._context = context
        self._ended = ended
        self._scratch = Scratch()
        data_bytes = context.arena.header.data_bytes
        self._headroom = min(MAX_HEADROOM_BYTES, data_bytes // HEADROOM_PART)

    def begin(self, now: float) -> None:
        """Begin a batch, if there is something to write and no batch is under way."""
        if self.busy_since is not None:
            return
        batch = self._choose(now)
        if batch:
            self.busy_since = now
            self.thread.submit(lambda: self._encode(batch))
        elif self._context.index.cleared:
            self.busy_since = now
            self._submit([])

    def _choose(self, now: float) -> list[_Move]:
        table, index = self._context.table, self._context.index
        batch: list[_Move] = []
        size = 0
        while size < MAX_JOB_BYTES and table.free_bytes + size < self._headroom:
            slot = table.policy.coldest()
            if slot is None:
                break
            if slot.partial or slot.object_id in index:
                table.evict(slot)
                continue
            lease = table.lease(slot.object_id, now, use=False)
            if not isinstance(lease, Lease):
                break
            batch.append(_Move(lease, slot.rank))
            size += slot.slot_bytes
        return batch

    def _encode(self, batch: list[_Move]) -> Callable[[], None]:
        """On the thread."""
        for move in batch:
            try:
                self._check_and_encode(move)
            except Exception as error:  # noqa: BLE001  # told later: the thread must go on
                move.error = error
        return lambda: self._place(batch)

    def _check_and_encode(self, move: _Move) -> None:
        slot = move.lease.slot
        data = self._context.arena.view(slot)
        if not self._context.is_right(slot.object_id, slot.digest, data):
            move.wrong = True
            return
        encoded = self._context.codecs.encode(data)
        # What takes as much room either way is not worth decoding.
        if encoded is not None and disk_size(len(encoded)) < disk_size(slot.object_bytes):
            move.encoded = encoded

    def _place(self, batch: list[_Move]) -> None:
        table = self._context.table
        writes = []
        for move in batch:
            slot = move.lease.slot
            if move.wrong and move.lease.live:
                self._context.counts.bad_objects += 1
                table.report_bad(move.lease)
                continue
            # Meanwhile the lease may have lapsed, the object been dropped or the disk failed.
            placed = None
            good = move.lease.live and slot.state is State.COMMITTED and not self.stopped
            good = good and move.error is None
            if good and self._context.index.get(slot.object_id) is None:
                size = slot.object_bytes if move.encoded is None else len(move.encoded)
                codec = AS_IT_IS if move.encoded is None else self._context.codecs.number
                placed = self._context.index.place(slot, size, codec)
            if placed is None:
                self._let_go(move)
            else:
                writes.append(_Write(move, *placed))
        self._submit(writes, next((move.error for move in batch if move.error is not None), None))

    def _submit(self, writes: list[_Write], failed: Exception | None = None) -> None:
        index = self._context.index
        cleared, index.cleared = index.cleared, []
        self.thread.submit(lambda: self._write(writes, cleared, failed))

    def _write(
        self, writes: list[_Write], cleared: Iterable[int], failed: Exception | None
    ) -> Callable[[], None]:
        """On the thread."""
        file = self._context.file
        unclear: Exception | None = None
        try:
            for offset in cleared:
                file.clear(offset)
        except Exception as error:  # noqa: BLE001  # told below: the thread must go on
            # What should have been cleared may be overwritten by nothing: digests still tell.
            unclear = error
        for write in writes:
            try:
                if unclear is not None:
                    raise unclear
                file.write(write.record, self._pages(write.move))
            except Exception as error:  # noqa: BLE001
                write.error = error
        return lambda: self._written(writes, failed or unclear)

    def _pages(self, move: _Move) -> memoryview:
        if move.encoded is None:
            return self._context.arena.pages(move.lease.slot)
        pages = self._scratch.pages(len(move.encoded))
        pages[: len(move.encoded)] = move.encoded
        return pages

    def _written(self, writes: list[_Write], failed: Exception | None) -> None:
        self.busy_since = None
        index = self._context.index
        for write in writes:
            entry, lease = write.entry, write.move.lease
            # A lease that lapsed may have let somebody else write there meanwhile.
            good = lease.live and write.error is None and entry.held
            good = good and lease.slot.state is State.COMMITTED  # else it was dropped meanwhile
            if good:
                self._context.counts.written_bytes += entry.object_bytes
                index.written(entry)
            elif entry.held:
                index.drop(entry)
            self._let_go(write.move)
        first = failed or next((w.error for w in writes if w.error is not None), None)
        self._ended(first, self._context.clock())

    def _let_go(self, move: _Move) -> None:
        """Memory goes on without the object, unless somebody used it meanwhile."""
        slot = move.lease.slot
        unused = slot.leases == 1 and slot.rank == move.rank
        self._context.table.release(move.lease)
        if slot.state is State.COMMITTED and unused:
            self._context.table.evict(slot)
