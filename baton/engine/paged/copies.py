"""Copies of blocks that other threads have under way."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class CopyTracker:
    """Lets the engine's thread wait until nobody copies from or to a sequence's pages.

    A copying thread registers first and looks the sequence up after that; the engine's thread
    hides the sequence's pages first and waits after that. So whoever still saw the pages is waited
    for. A copy is one block of memory: waits are short.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: dict[int, int] = {}

    @contextmanager
    def of(self, sequence_id: int) -> Iterator[None]:
        """Held by the copying thread."""
        with self._changed:
            self._counts[sequence_id] = self._counts.get(sequence_id, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._counts[sequence_id] -= 1
                if self._counts[sequence_id] == 0:
                    del self._counts[sequence_id]
                    self._changed.notify_all()

    def wait(self, sequence_id: int) -> None:
        """Return when no copy of the sequence is under way."""
        with self._changed:
            self._changed.wait_for(lambda: sequence_id not in self._counts)
