"""The disk tier: objects that memory has no room for go to disk, and come back when asked for.

The event loop decides, two threads move bytes, one each way, a batch at a time. Memory is kept a
little emptier than full: what goes next is written out first, so that reserving a slot still waits
for nothing; where the disk is slower than the writers, what goes is lost, as without a disk. Bytes
move straight between arena and file. What comes back stays on disk too, so that leaving memory
again costs nothing; a block is announced in the best tier that has it.

A disk that fails or hangs is switched off until the next start: memory goes on alone. What its
threads still hold in the arena stays theirs until they let go.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from baton.kv.digest import start_digest
from baton.kv.objects import ObjectId
from baton.telemetry.logs import get_logger
from services.kvstore.arena import Arena
from services.kvstore.disk_file import DiskFile, Record
from services.kvstore.disk_index import DiskEntry, DiskIndex
from services.kvstore.io_thread import IoThread
from services.kvstore.slots import Lease, Refusal, Slot, State
from services.kvstore.table import ObjectTable

log = get_logger(__name__)

HEADROOM_PART = 8
"""Memory is kept this part emptier than full."""
MAX_HEADROOM_BYTES = 64 * 1024 * 1024
MAX_JOB_BYTES = 8 * 1024 * 1024
"""One batch of a thread; one object at least."""
MAX_ERRORS = 3
"""Failed reads or writes after which the disk is off."""
STALL_SECONDS = 5.0
"""A batch that takes longer means that the disk hangs."""
FRESH_SECONDS = 1.0
"""How long what came back may wait to be leased before it counts as wanted no more."""


class Waiters(Protocol):
    """Who waits for objects."""

    def wanted(self, object_id: ObjectId) -> bool: ...

    def not_below(self, object_id: ObjectId, now: float) -> None:
        """The tier does not have it, or has it no longer."""


class DiskListener(Protocol):
    """Is told what can be read from disk."""

    def stored_below(self, object_id: ObjectId) -> None: ...

    def gone_below(self, object_id: ObjectId) -> None: ...


@dataclass(eq=False, slots=True)
class _Write:
    entry: DiskEntry
    record: Record
    lease: Lease
    rank: float
    """Of the slot when it was chosen: another one means that somebody used it since."""
    error: OSError | None = None
    wrong: bool = False


@dataclass(eq=False, slots=True)
class _Read:
    entry: DiskEntry
    slot: Slot
    error: OSError | None = None
    wrong: bool = False


@dataclass(slots=True)
class DiskCounts:
    """What the tier has done."""

    read_bytes: int = 0
    written_bytes: int = 0
    bad_objects: int = 0
    errors: int = 0


class DiskTier:
    """See the module's text. Whoever made it calls `close`.

    Args:
        file: where bytes go.
        index: what lies there.
        table: the objects in memory.
        arena: their bytes.
        waiters: who waits.
        listener: told what can be read from disk.
        commit: makes an object that came back readable.
        verify: whether what is read is checked against its digest.
        clock: seconds that only go forward.
        alarm: called once with a sentence when the disk is switched off.
    """

    def __init__(
        self,
        file: DiskFile,
        index: DiskIndex,
        table: ObjectTable,
        arena: Arena,
        waiters: Waiters,
        listener: DiskListener,
        commit: Callable[[Slot, bytes], bool],
        *,
        verify: bool,
        clock: Callable[[], float],
        alarm: Callable[[str], None],
    ) -> None:
        self.index = index
        self.counts = DiskCounts()
        self.failed = ""
        """Why the disk is off; empty while it works."""
        self._file = file
        self._table = table
        self._arena = arena
        self._waiters = waiters
        self._listener = listener
        self._commit = commit
        self._verify = verify
        self._now = clock
        self._alarm = alarm
        self._headroom = min(MAX_HEADROOM_BYTES, arena.header.data_bytes // HEADROOM_PART)
        self._reader = IoThread("kv-disk-read")
        self._writer = IoThread("kv-disk-write")
        self._reading: list[_Read] = []
        self._writing: list[_Write] = []
        self._busy_since: dict[IoThread, float] = {}
        self._due: dict[ObjectId, None] = {}
        """Wanted back, in order."""
        self._flying: set[ObjectId] = set()
        self._fresh: deque[tuple[Slot, float, float]] = deque()
        """Came back and is not leased yet: with its rank, and until when that counts."""
        for entry in index.entries():
            listener.stored_below(entry.object_id)

    # Asked by others

    def bring(self, object_id: ObjectId) -> bool:
        """Fetch an object back into memory; False where it is not here."""
        entry = self.index.get(object_id)
        if entry is None or not entry.readable:
            return False
        self.index.use(entry)
        if object_id not in self._flying:
            self._due[object_id] = None
        return True

    def bringing(self, object_id: ObjectId) -> bool:
        """Whether it is on its way."""
        return object_id in self._due or object_id in self._flying

    def drop(self, object_id: ObjectId) -> bool:
        """Forget an object; answers whether it was here."""
        entry = self.index.get(object_id)
        if entry is None:
            return False
        self.index.drop(entry)
        return True

    def settle(self, now: float) -> None:
        """Begin what can be begun."""
        if not self.failed:
            self._begin_writes(now)
            self._begin_reads(now)
        self._announce()

    def tick(self, now: float) -> None:
        """Notice a disk that hangs."""
        while self._fresh and self._fresh[0][2] <= now:
            self._fresh.popleft()
        if self._busy_since and now - min(self._busy_since.values()) > STALL_SECONDS:
            self._off(f"it does not answer for {STALL_SECONDS:g} s", now)

    async def close(self) -> None:
        """End the threads and close the file, which keeps what was written."""
        self.failed = self.failed or "closed"
        ended = [await thread.stop(STALL_SECONDS) for thread in (self._reader, self._writer)]
        if all(ended):
            self._file.close()

    # Out of memory

    def _begin_writes(self, now: float) -> None:
        if self._writer in self._busy_since:
            return
        batch = self._choose_writes(now)
        cleared, self.index.cleared = self.index.cleared, []
        if batch or cleared:
            self._writing = batch
            self._busy_since[self._writer] = now
            self._writer.submit(lambda: self._write(batch, cleared))

    def _choose_writes(self, now: float) -> list[_Write]:
        batch: list[_Write] = []
        size = 0
        while size < MAX_JOB_BYTES and self._table.free_bytes + size < self._headroom:
            slot = self._table.policy.coldest()
            if slot is None:
                break
            if slot.partial or slot.object_id in self.index:
                self._table.evict(slot)
                continue
            if self.index.get(slot.object_id) is not None:
                break  # its last write is not over
            lease = self._table.lease(slot.object_id, now, use=False)
            if not isinstance(lease, Lease):
                break
            placed = self.index.place(slot)
            if placed is None:
                self._table.release(lease)
                self._table.evict(slot)
                continue
            batch.append(_Write(*placed, lease, slot.rank))
            size += slot.slot_bytes
        return batch

    def _write(self, batch: list[_Write], cleared: Iterable[int]) -> Callable[[], None]:
        """On the thread."""
        failed: OSError | None = None
        try:
            for offset in cleared:
                self._file.clear(offset)
        except OSError as error:
            # What should have been cleared may be overwritten by nothing: digests still tell.
            failed = error
        for write in batch:
            pages = self._arena.pages(write.lease.slot)
            if self._verify and not _is_right(write.entry, pages):
                write.wrong = True
                continue
            try:
                if failed is not None:
                    raise failed
                self._file.write(write.record, pages)
            except OSError as error:
                write.error = error
        return lambda: self._written(batch, failed)

    def _written(self, batch: list[_Write], failed: OSError | None) -> None:
        del self._busy_since[self._writer]
        self._writing = []
        now = self._now()
        for write in batch:
            entry, lease, slot = write.entry, write.lease, write.lease.slot
            # A lease that lapsed may have let somebody else write there meanwhile.
            good = lease.live and not write.wrong and write.error is None and entry.held
            good = good and slot.state is State.COMMITTED  # else it was dropped meanwhile
            if good:
                self.counts.written_bytes += entry.object_bytes
                self.index.written(entry)
            elif entry.held:
                self.index.drop(entry)
            if write.wrong and lease.live:
                self.counts.bad_objects += 1
                self._table.report_bad(lease)
                continue
            unused = slot.leases == 1 and slot.rank == write.rank
            self._table.release(lease)
            if slot.state is State.COMMITTED and unused:
                self._table.evict(slot)
        self._note(failed or next((w.error for w in batch if w.error is not None), None), now)
        self.settle(now)

    # Back into memory

    def _begin_reads(self, now: float) -> None:
        if self._reader in self._busy_since or not self._due:
            return
        self._fresh = deque(fresh for fresh in self._fresh if _is_unread(fresh[0], fresh[1]))
        waiting = sum(slot.slot_bytes for slot, _, _ in self._fresh)
        batch: list[_Read] = []
        size = 0
        # What came back and nobody could lease yet must not push itself out again.
        while self._due and size < MAX_JOB_BYTES:
            if size + waiting and size + waiting >= self._table.cap_bytes // 4:
                break
            object_id = next(iter(self._due))
            entry = self.index.get(object_id)
            if not self._waiters.wanted(object_id) or self._table.get(object_id) is not None:
                del self._due[object_id]
                continue
            if entry is None or not entry.readable:
                del self._due[object_id]
                self._waiters.not_below(object_id, now)
                continue
            slot = self._table.reserve(
                object_id,
                entry.object_bytes,
                now=now,
                writer=self,
                tenant=entry.tenant,
                cost=entry.cost,
            )
            if slot is Refusal.EXHAUSTED:
                break
            del self._due[object_id]
            if isinstance(slot, Slot):
                self._flying.add(object_id)
                self.index.begin_read(entry)
                batch.append(_Read(entry, slot))
                size += slot.slot_bytes
        if batch:
            self._reading = batch
            self._busy_since[self._reader] = now
            self._reader.submit(lambda: self._read(batch))

    def _read(self, batch: list[_Read]) -> Callable[[], None]:
        """On the thread."""
        for read in batch:
            pages = self._arena.pages(read.slot)
            try:
                self._file.read(read.entry.offset, pages)
            except OSError as error:
                read.error = error
            else:
                read.wrong = self._verify and not _is_right(read.entry, pages)
        return lambda: self._came(batch)

    def _came(self, batch: list[_Read]) -> None:
        del self._busy_since[self._reader]
        self._reading = []
        now = self._now()
        for read in batch:
            entry, object_id = read.entry, read.entry.object_id
            self._flying.discard(object_id)
            self.index.end_read(entry)
            if read.error is None and not read.wrong and entry.held:
                self.counts.read_bytes += entry.object_bytes
                if self._commit(read.slot, entry.digest):
                    self._fresh.append((read.slot, read.slot.rank, now + FRESH_SECONDS))
                    continue
            else:
                self._table.abandon(read.slot)
                self.counts.bad_objects += read.wrong
                if entry.held:
                    self.index.drop(entry)
            self._waiters.not_below(object_id, now)
        self._note(next((r.error for r in batch if r.error is not None), None), now)
        self.settle(now)

    # Failure

    def _note(self, error: OSError | None, now: float) -> None:
        if error is None:
            return
        self.counts.errors += 1
        log.error("the disk of KV failed", path=str(self._file.path), error=str(error))
        if self.counts.errors >= MAX_ERRORS:
            self._off(str(error), now)

    def _off(self, reason: str, now: float) -> None:
        if self.failed:
            return
        self.failed = reason
        self._alarm(reason)
        for entry in self.index.entries():
            self.index.drop(entry)
        self.index.cleared.clear()
        self._announce()
        due, self._due = list(self._due), {}
        flying, self._flying = list(self._flying), set()
        for read in self._reading:
            if read.slot.state is State.RESERVED:
                self._table.lapse(read.slot)  # free once the thread lets go of it
        for object_id in (*due, *flying):
            self._waiters.not_below(object_id, now)

    def _announce(self) -> None:
        dropped, self.index.dropped = self.index.dropped, []
        for object_id in dropped:
            self._listener.gone_below(object_id)


def _is_unread(slot: Slot, rank: float) -> bool:
    return slot.state is State.COMMITTED and not slot.leases and slot.rank == rank


def _is_right(entry: DiskEntry, pages: memoryview) -> bool:
    digest = start_digest(entry.object_id, entry.object_bytes)
    digest.update(pages[: entry.object_bytes])
    return digest.digest() == entry.digest
