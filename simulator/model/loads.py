"""How busy workers are, as columns: one entry per worker."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Loads:
    """Load of all workers at one moment. Those of the cluster are always up to date."""

    _COLUMNS = ("blocks", "busy_until", "queued", "streams", "transfers_until", "waiting")
    __slots__ = (*_COLUMNS, "measured_at")

    def __init__(self, workers: int) -> None:
        self.measured_at = 0.0
        self.queued: Floats = np.zeros(workers)
        """Seconds of computing that wait, as predicted when they were placed."""
        self.busy_until: Floats = np.zeros(workers)
        """When the prompt that is computed now ends."""
        self.transfers_until: Floats = np.zeros(workers)
        """When the last transfer to the worker ends."""
        self.waiting: Integers = np.zeros(workers, np.int64)
        """Prompts that are not computed yet, the one that is computed now included."""
        self.streams: Integers = np.zeros(workers, np.int64)
        self.blocks: Integers = np.zeros(workers, np.int64)
        """Of the prompts of requests that have not ended."""

    def measure(self, now: float) -> "Loads":
        """Return a copy of these loads as they are now."""
        measured = Loads(0)
        measured.measured_at = now
        for name in self._COLUMNS:
            setattr(measured, name, getattr(self, name).copy())
        return measured

    def wait(self, now: float) -> Floats:
        """Return the seconds until each worker has computed what it has."""
        left: Floats = self.queued + np.maximum(self.busy_until - now, 0.0)
        return left
