"""Loads objects that reads wait for from disk into the arena; they stay on disk too."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from baton.kv.objects import ObjectId
from baton.process.io_thread import IoThread
from services.kvstore.disk.context import MAX_JOB_BYTES, DiskContext
from services.kvstore.disk.file import MAX_RUN
from services.kvstore.disk.index import DiskEntry
from services.kvstore.memory.slot import Slot, SlotRefusal, SlotState

FRESH_SECONDS = 1.0
"""Seconds for which a loaded object counts as wanted without being leased."""


class Waiters(Protocol):
    """The reads that wait for objects."""

    def is_awaited(self, object_id: ObjectId) -> bool:
        """Return whether a read waits for an object."""

    def not_on_disk(self, object_id: ObjectId, now: float) -> None:
        """Record that the disk does not have an object, or no longer has it."""


@dataclass(eq=False, slots=True)
class _Read:
    entry: DiskEntry
    slot: Slot
    error: Exception | None = None
    wrong: bool = False


class Loader:
    """Reads objects into reserved slots, a batch at a time, on one thread.

    Owned by DiskTier, on the event loop. Bounded by one batch, and by what reads wait for.

    Args:
        context: memory and disk.
        waiters: the waiting reads.
        commit: makes a loaded object readable.
        ended: called after each batch with its first error and the time.
    """

    def __init__(
        self,
        context: DiskContext,
        waiters: Waiters,
        commit: Callable[[Slot, bytes], bool],
        ended: Callable[[Exception | None, float], None],
    ) -> None:
        self.thread = IoThread("kv-disk-read")
        self.busy_since: float | None = None
        self._context = context
        self._waiters = waiters
        self._commit = commit
        self._ended = ended
        self._reading: list[_Read] = []
        self._due: dict[ObjectId, str] = {}
        """Objects to load, with the tenant charged for each."""
        self._turns: dict[str, dict[ObjectId, None]] = {}
        """The same by tenant, in order; tenants take turns."""
        self._flying: set[ObjectId] = set()
        self._fresh: deque[tuple[Slot, float, float]] = deque()
        """Loaded slots that are not leased yet, with rank and time limit."""

    def load(self, entry: DiskEntry) -> None:
        """Load an object from disk."""
        if entry.object_id not in self._flying and entry.object_id not in self._due:
            self._due[entry.object_id] = entry.tenant
            self._turns.setdefault(entry.tenant, {})[entry.object_id] = None

    def is_loading(self, object_id: ObjectId) -> bool:
        """Return whether an object is being loaded."""
        return object_id in self._due or object_id in self._flying

    @property
    def waiting(self) -> bool:
        """Whether an object is wanted that is not being loaded yet."""
        return bool(self._due)

    def tick(self, now: float) -> None:
        """Unmark loaded objects that were not leased in time."""
        while self._fresh and self._fresh[0][2] <= now:
            self._fresh.popleft()

    def begin(self, now: float) -> None:
        """Begin a batch, if an object is due and no batch is in progress."""
        if self.busy_since is not None or not self._due:
            return
        batch = self._choose(now)
        if batch:
            self._reading = batch
            self.busy_since = now
            self.thread.submit(lambda: self._read(batch))

    def stop(self, now: float) -> None:
        """Cancel due and current loads: the disk is off."""
        due, self._due, self._turns = list(self._due), {}, {}
        flying, self._flying = list(self._flying), set()
        for read in self._reading:
            if read.slot.state is SlotState.RESERVED:
                # It is freed once the thread releases it.
                self._context.table.reservations.expire_slot(read.slot)
        for object_id in (*due, *flying):
            self._waiters.not_on_disk(object_id, now)

    def _choose(self, now: float) -> list[_Read]:
        table, index = self._context.table, self._context.index
        self._fresh = deque(fresh for fresh in self._fresh if _is_unread(fresh[0], fresh[1]))
        waiting = sum(slot.slot_bytes for slot, _, _ in self._fresh)
        batch: list[_Read] = []
        size = 0
        # Loaded objects that could not be leased yet must not evict themselves.
        turns = deque(self._turns)
        while turns and size < MAX_JOB_BYTES:
            if size + waiting and size + waiting >= table.cap_bytes // 4:
                break
            tenant = turns.popleft()
            object_id = next(iter(self._turns[tenant]))
            entry = index.get(object_id)
            if not self._waiters.is_awaited(object_id) or table.get(object_id) is not None:
                self._not_due(object_id)
            elif entry is None or not entry.readable:
                self._not_due(object_id)
                self._waiters.not_on_disk(object_id, now)
            else:
                (slot,) = table.reserve(
                    [object_id],
                    entry.object_bytes,
                    now=now,
                    writer=self,
                    tenant=entry.tenant,
                    cost=entry.cost,
                )
                if slot is SlotRefusal.EXHAUSTED:
                    continue  # a load without space now does not delay the other tenants
                self._not_due(object_id)
                if isinstance(slot, Slot):
                    self._flying.add(object_id)
                    index.begin_read(entry)
                    batch.append(_Read(entry, slot))
                    size += slot.slot_bytes
            if tenant in self._turns:
                turns.append(tenant)
        return batch

    def _not_due(self, object_id: ObjectId) -> None:
        tenant = self._due.pop(object_id)
        turn = self._turns.pop(tenant)
        del turn[object_id]
        if turn:
            self._turns[tenant] = turn  # its next turn comes after those of the others

    def _read(self, batch: list[_Read]) -> Callable[[], None]:
        """Read a batch, on the thread."""
        for run in _adjacent(batch):
            if len(run) == 1 or not self._read_run(run):
                for read in run:
                    self._read_run([read])
        return lambda: self._came(batch)

    def _read_run(self, run: list[_Read]) -> bool:
        """Read and check adjacent slots; return False, with the error, if the disk failed."""
        first, arena = run[0].entry, self._context.arena
        try:
            pages = [arena.pages(read.slot) for read in run]
            self._context.file.read(first.offset, pages, first.slot_bytes)
            for read in run:
                name, digest = read.entry.object_id, read.entry.digest
                read.wrong = not self._context.is_right(name, digest, arena.view(read.slot))
                read.error = None
        except Exception as error:  # noqa: BLE001  # reported below: the thread must continue
            for read in run:
                read.error = error
            return False
        return True

    def _came(self, batch: list[_Read]) -> None:
        self.busy_since = None
        self._reading = []
        table, index, counts = self._context.table, self._context.index, self._context.counts
        now = self._context.clock()
        for read in batch:
            entry, object_id = read.entry, read.entry.object_id
            self._flying.discard(object_id)
            index.end_read(entry)
            if read.error is None and not read.wrong and entry.held:
                counts.read_bytes += entry.object_bytes
                if self._commit(read.slot, entry.digest):
                    if not read.slot.leases:
                        self._fresh.append((read.slot, read.slot.rank, now + FRESH_SECONDS))
                    continue
            else:
                table.reservations.abandon(read.slot)
                if entry.held:  # otherwise it was dropped, and its place may be another's by now
                    counts.bad_objects += read.wrong
                    index.drop(entry)
            self._waiters.not_on_disk(object_id, now)
        self._ended(next((r.error for r in batch if r.error is not None), None), now)


def _adjacent(batch: list[_Read]) -> list[list[_Read]]:
    """Return the reads of a batch in runs of slots of one size that follow each other on disk."""
    runs: list[list[_Read]] = []
    for read in sorted(batch, key=lambda each: each.entry.offset):
        last = runs[-1][-1].entry if runs else None
        follows = (
            last is not None
            and len(runs[-1]) < MAX_RUN
            and read.entry.slot_bytes == last.slot_bytes
            and read.entry.offset == last.offset + last.slot_bytes
        )
        if follows:
            runs[-1].append(read)
        else:
            runs.append([read])
    return runs


def _is_unread(slot: Slot, rank: float) -> bool:
    return slot.state is SlotState.COMMITTED and not slot.leases and slot.rank == rank
