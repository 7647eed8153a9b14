"""The disk tier: objects that memory has no room for go to disk, and come back when asked for.

The event loop decides, two threads move bytes, one each way, a batch at a time. Memory is kept a
little emptier than full: what goes next is written out first, so that reserving a slot still waits
for nothing; where the disk is slower than the writers, what goes is lost, as without a disk. Bytes
move straight between arena and file unless a codec is set. What comes back stays on disk too, so
that leaving memory again costs nothing; a block is announced in the best tier that has it.

A disk that fails or hangs is switched off until the next start: memory goes on alone. What its
threads still hold in the arena stays theirs until they let go.
"""

from collections.abc import Callable
from typing import Protocol

from baton.kv.objects import ObjectId
from baton.telemetry.logs import get_logger
from services.kvstore.disk.context import DiskContext
from services.kvstore.disk.load import Loader, Waiters
from services.kvstore.disk.spill import Spiller
from services.kvstore.memory.slot import Slot

log = get_logger(__name__)

MAX_ERRORS = 3
"""Failed reads or writes after which the disk is off."""
STALL_SECONDS = 5.0
"""A batch that takes longer means that the disk hangs."""


class DiskListener(Protocol):
    """Is told what can be read from disk."""

    def stored_on_disk(self, object_id: ObjectId) -> None: ...

    def gone_from_disk(self, object_id: ObjectId) -> None: ...


class DiskTier:
    """See the module's text. Whoever made it calls `close`.

    Args:
        context: memory and disk.
        waiters: who waits.
        listener: told what can be read from disk.
        commit: makes an object that came back readable.
        alarm: called once with a sentence when the disk is switched off.
    """

    def __init__(
        self,
        context: DiskContext,
        waiters: Waiters,
        listener: DiskListener,
        commit: Callable[[Slot, bytes], bool],
        *,
        alarm: Callable[[str], None],
    ) -> None:
        self.index = context.index
        self.counts = context.counts
        self.failed = ""
        """Why the disk is off; empty while it works."""
        self._file = context.file
        self._listener = listener
        self._alarm = alarm
        self._spiller = Spiller(context, self._ended)
        self._loader = Loader(context, waiters, commit, self._ended)
        for entry in self.index.entries():
            listener.stored_on_disk(entry.object_id)

    @property
    def moving(self) -> bool:
        """Whether a batch is under way, or something is wanted back."""
        return self._busy_since() is not None or self._loader.waiting

    # Asked by others

    def load(self, object_id: ObjectId) -> bool:
        """Fetch an object back into memory; False where it is not here."""
        entry = self.index.get(object_id)
        if entry is None or not entry.readable:
            return False
        self.index.use(entry)
        self._loader.load(entry)
        return True

    def loading(self, object_id: ObjectId) -> bool:
        """Whether it is on its way."""
        return self._loader.loading(object_id)

    def drop(self, object_id: ObjectId) -> bool:
        """Forget an object; answers whether it was here."""
        entry = self.index.get(object_id)
        if entry is None:
            return False
        self.index.drop(entry)
        return True

    def flush(self, now: float) -> None:
        """Begin what can be begun."""
        if not self.failed:
            self._spiller.begin(now)
            self._loader.begin(now)
        self._announce()

    def tick(self, now: float) -> None:
        """Notice a disk that hangs."""
        self._loader.tick(now)
        since = self._busy_since()
        if since is not None and now - since > STALL_SECONDS:
            self._off(f"it does not answer for {STALL_SECONDS:g} s", now)

    async def close(self) -> None:
        """End the threads and close the file, which keeps what was written."""
        self.failed = self.failed or "closed"
        self._spiller.stopped = True
        threads = (self._loader.thread, self._spiller.thread)
        ended = [await thread.stop(STALL_SECONDS) for thread in threads]
        if all(ended):
            self._file.close()

    # Failure

    def _busy_since(self) -> float | None:
        since = (self._spiller.busy_since, self._loader.busy_since)
        return min((each for each in since if each is not None), default=None)

    def _ended(self, error: Exception | None, now: float) -> None:
        if error is not None:
            self.counts.errors += 1
            log.error("the disk of KV failed", path=str(self._file.path), error=str(error))
            if self.counts.errors >= MAX_ERRORS:
                self._off(str(error), now)
        self.flush(now)

    def _off(self, reason: str, now: float) -> None:
        if self.failed:
            return
        self.failed = reason
        self._spiller.stopped = True
        self._alarm(reason)
        for entry in self.index.entries():
            self.index.drop(entry)
        self.index.cleared.clear()
        self._announce()
        self._loader.stop(now)

    def _announce(self) -> None:
        dropped, self.index.dropped = self.index.dropped, []
        for object_id in dropped:
            self._listener.gone_from_disk(object_id)
