"""The disk tier: objects that do not fit in memory go to disk, and are loaded on request."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from baton.kv.objects import ObjectId
from baton.settings import StoreSettings
from baton.telemetry.logs import get_logger
from services.kvstore.disk.context import DiskContext
from services.kvstore.disk.load import Loader, Waiters
from services.kvstore.disk.spill import Spiller
from services.kvstore.memory.slot import Slot

log = get_logger(__name__)

ERROR_SECONDS = 60.0
"""Errors further apart than this count as unrelated."""
MAX_TICK_SECONDS = 0.5
"""A longer time between two ticks is one in which this process was suspended."""


class DiskListener(Protocol):
    """Follows which objects can be read from disk."""

    def stored_on_disk(self, object_id: ObjectId) -> None:
        """Record an object written by an earlier process."""

    def removed_from_disk(self, object_id: ObjectId) -> None:
        """Record that an object is no longer on disk."""


class DiskTier:
    """Moves objects between memory and disk: two threads, one per direction, a batch at a time.

    Made by `disk_setup`, closed by the store; owned and controlled by the event loop. Memory is
    kept a little emptier than full: what would be evicted next is spilled first, so that reserving
    a slot still never waits. If the disk is slower than the writers, evicted objects are lost, as
    without a disk. Loaded objects stay on disk too, so that evicting them again costs nothing.

    A disk that fails or hangs is switched off, permanently for this object, and only memory is used
    until `disk_setup` has opened the file again. Slots in use by its threads stay reserved until
    they release them.

    Args:
        context: memory and disk.
        waiters: the waiting reads.
        listeners: notified of what can be read from disk, in this order.
        commit: makes a loaded object readable.
        on_failed: called once with a sentence when the disk is switched off.
        on_change: called after each batch; the caller then calls `flush`.
        settings: number of errors, and duration of a batch, after which the disk counts as failed.
    """

    def __init__(
        self,
        context: DiskContext,
        waiters: Waiters,
        listeners: Sequence[DiskListener],
        commit: Callable[[Slot, bytes], bool],
        *,
        on_failed: Callable[[str], None],
        on_change: Callable[[], None],
        settings: StoreSettings,
    ) -> None:
        self._stall_seconds = settings.disk_stall_seconds
        self.index = context.index
        self.counts = context.counts
        self.failed = ""
        """Why the disk is off; empty while it works."""
        self.kept: dict[ObjectId, bytes] = {}
        """Digests of objects on a disk that is off, except those dropped since."""
        self._failed_at = deque[float](maxlen=settings.disk_max_errors)
        """When the last failed batches ended."""
        self._silent_seconds = 0.0
        """Seconds that the current batch has taken, in time in which this process ran."""
        self._ticked_at = context.clock()
        self._waits_since: float | None = None
        self._file = context.file
        self._listeners = listeners
        self._on_failed = on_failed
        self._on_change = on_change
        self._spiller = Spiller(context, self._ended)
        self._loader = Loader(context, waiters, commit, self._ended)
        for entry in self.index.entries():
            for listener in listeners:
                listener.stored_on_disk(entry.object_id)

    @property
    def busy(self) -> bool:
        """Whether a batch is in progress, or an object waits to be loaded."""
        return self._busy_since() is not None or self._loader.waiting

    def load(self, object_id: ObjectId) -> bool:
        """Load an object into memory; return False if it is not on disk."""
        entry = self.index.get(object_id)
        if entry is None or not entry.readable:
            return False
        self.index.use(entry)
        self._loader.load(entry)
        return True

    def is_loading(self, object_id: ObjectId) -> bool:
        """Return whether an object is being loaded into memory."""
        return self._loader.is_loading(object_id)

    def drop(self, object_id: ObjectId) -> bool:
        """Drop an object; return whether it was on disk."""
        if self.failed:
            return self.kept.pop(object_id, None) is not None
        entry = self.index.get(object_id)
        if entry is None:
            return False
        self.index.drop(entry)
        return True

    def flush(self, now: float) -> None:
        """Begin all possible batches."""
        if not self.failed:
            self._spiller.begin(now)
            self._loader.begin(now)
        self._publish()

    def tick(self, now: float) -> None:
        """Detect a disk that hangs. Time in which this process was suspended does not count."""
        self._loader.tick(now)
        ran, self._ticked_at = min(now - self._ticked_at, MAX_TICK_SECONDS), now
        since = self._busy_since()
        if since is None or since != self._waits_since:
            self._waits_since, self._silent_seconds = since, 0.0
            return
        self._silent_seconds += ran
        if self._silent_seconds > self._stall_seconds:
            self._switch_off(f"no response for {self._stall_seconds:g} s", now)

    async def close(self, *, wait: bool = False) -> None:
        """End the threads and close the file, which keeps its contents. Idempotent.

        Args:
            wait: wait for threads that hang, without limit; otherwise they keep the file open.
        """
        self.failed = self.failed or "closed"
        seconds = None if wait else self._stall_seconds
        threads = (self._loader.thread, self._spiller.thread)
        ended = [await thread.stop(seconds) for thread in threads]
        if all(ended):
            self._file.close()

    def _busy_since(self) -> float | None:
        since = (self._spiller.busy_since, self._loader.busy_since)
        return min((each for each in since if each is not None), default=None)

    def _ended(self, error: Exception | None, now: float) -> None:
        if error is not None:
            self.counts.errors += 1
            log.error("kv.disk.batch_failed", path=str(self._file.path), error=str(error))
            failed = self._failed_at
            failed.append(now)
            if len(failed) == failed.maxlen and now - failed[0] <= ERROR_SECONDS:
                self._switch_off(str(error), now)
        self._on_change()

    def _switch_off(self, reason: str, now: float) -> None:
        if self.failed:
            return
        self.failed = reason
        self._on_failed(reason)
        for entry in self.index.entries():
            if entry.readable:
                self.kept[entry.object_id] = entry.digest
            self.index.drop(entry)
        self.index.cleared.clear()
        self.index.erased.clear()
        self._publish()
        self._loader.stop(now)

    def _publish(self) -> None:
        dropped, self.index.dropped = self.index.dropped, []
        for object_id in dropped:
            for listener in self._listeners:
                listener.removed_from_disk(object_id)
