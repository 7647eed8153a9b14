"""Writers whose stream ended and whose death is not proven yet."""

from collections.abc import Callable

from baton.kv.arena.writer_lock import WriterLockProbe


class EndedWriters:
    """Probes the locks of writers until they are free. Owned by the store, on its event loop.

    Bounded by the processes that attached: each holds one lock as long as it lives.

    Args:
        on_dead: called with the lock of a writer that is proven dead.
    """

    def __init__(self, on_dead: Callable[[WriterLockProbe], object]) -> None:
        self._on_dead = on_dead
        self._locks: set[WriterLockProbe] = set()

    def add(self, lock: WriterLockProbe) -> None:
        """Watch a writer; the probe is closed here."""
        self._locks.add(lock)
        self.probe()

    def probe(self) -> None:
        """Check which writers are dead by now."""
        for lock in [lock for lock in self._locks if lock.is_free()]:
            self._locks.remove(lock)
            self._on_dead(lock)
            lock.close(remove=True)

    def close(self) -> None:
        """Stop watching."""
        while self._locks:
            self._locks.pop().close()
