"""The disk tier: objects that memory has no room for go to disk, and are loaded when asked for."""

from collections import deque
from collections.abc import Callable
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
"""Errors that are further apart have nothing to do with each other."""
MAX_TICK_SECONDS = 0.5
"""More between two ticks is time in which this process did not run."""


class DiskListener(Protocol):
    """Follows what can be read from disk."""

    def stored_on_disk(self, object_id: ObjectId) -> None:
        """Take note of an object that an earlier process wrote."""

    def removed_from_disk(self, object_id: ObjectId) -> None:
        """Take note that an object is no longer there."""


class DiskTier:
    """Moves objects between memory and disk: two threads, one each way, a batch at a time.

    Made by `disk_setup`, closed by the store; the event loop owns and decides. Memory is kept a
    little emptier than full: what would be evicted next is spilled first, so that reserving a slot
    still waits for nothing. Where the disk is slower than the writers, what is evicted is lost, as
    without a disk. What is loaded stays on disk too, so that evicting it again costs nothing.

    A disk that fails or hangs is switched off, for good as far as this object goes, and memory
    serves alone until `disk_setup` has opened the file anew. Slots that its threads still use stay
    reserved for them until they let go.

    Args:
        context: memory and disk.
        waiters: the reads that wait.
        listener: told what can be read from disk.
        commit: makes a loaded object readable.
        on_failed: called once with a sentence when the disk is switched off.
        on_change: called after each batch; `flush` is to follow.
        settings: how many errors, and how long a batch, mean that the disk fails or hangs.
    """

    def __init__(
        self,
        context: DiskContext,
        waiters: Waiters,
        listener: DiskListener,
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
        """Digests of what lies on a disk that is off, but for what was dropped since."""
        self._failed_at = deque[float](maxlen=settings.disk_max_errors)
        """When the last batches failed."""
        self._silent_seconds = 0.0
        """How long the batch under way has kept the disk, in time in which this process ran."""
        self._ticked_at = context.clock()
        self._waits_since: float | None = None
        self._file = context.file
        self._listener = listener
        self._on_failed = on_failed
        self._on_change = on_change
        self._spiller = Spiller(context, self._ended)
        self._loader = Loader(context, waiters, commit, self._ended)
        for entry in self.index.entries():
            listener.stored_on_disk(entry.object_id)

    @property
    def busy(self) -> bool:
        """Whether a batch is under way, or an object waits to be loaded."""
        return self._busy_since() is not None or self._loader.waiting

    def load(self, object_id: ObjectId) -> bool:
        """Load an object into memory; return False where it is not on disk."""
        entry = self.index.get(object_id)
        if entry is None or not entry.readable:
            return False
        self.index.use(entry)
        self._loader.load(entry)
        return True

    def is_loading(self, object_id: ObjectId) -> bool:
        """Return whether an object is on its way into memory."""
        return self._loader.is_loading(object_id)

    def drop(self, object_id: ObjectId) -> bool:
        """Forget an object; return whether it was on disk."""
        if self.failed:
            return self.kept.pop(object_id, None) is not None
        entry = self.index.get(object_id)
        if entry is None:
            return False
        self.index.drop(entry)
        return True

    def flush(self, now: float) -> None:
        """Begin the batches that can be begun."""
        if not self.failed:
            self._spiller.begin(now)
            self._loader.begin(now)
        self._publish()

    def tick(self, now: float) -> None:
        """Notice a disk that hangs. A pause of this process is none of the disk's."""
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
        """End the threads and close the file, which keeps what was written. Idempotent.

        Args:
            wait: for threads that hang, as long as they do; else they keep the file open.
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
        self._publish()
        self._loader.stop(now)

    def _publish(self) -> None:
        dropped, self.index.dropped = self.index.dropped, []
        for object_id in dropped:
            self._listener.removed_from_disk(object_id)
