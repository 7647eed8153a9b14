"""Loads of workers as columns: one entry per worker."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Loads:
    """Loads of all workers at one time. Those of the cluster are always current."""

    _COLUMNS = ("blocks", "busy_until", "queued", "streams", "transfers_until", "waiting")
    __slots__ = (*_COLUMNS, "measured_at")

    def __init__(self, workers: int) -> None:
        self.measured_at = 0.0
        self.queued: Floats = np.zeros(workers)
        """Seconds of waiting computation, as predicted at placement."""
        self.busy_until: Floats = np.zeros(workers)
        """When the current prompt ends."""
        self.transfers_until: Floats = np.zeros(workers)
        """When the last transfer to the worker ends."""
        self.waiting: Integers = np.zeros(workers, np.int64)
        """Prompts not computed yet, including the current one."""
        self.streams: Integers = np.zeros(workers, np.int64)
        self.blocks: Integers = np.zeros(workers, np.int64)
        """Blocks of the prompts of unfinished requests."""

    def measure(self, now: float) -> "Loads":
        """Return a copy of the current loads."""
        measured = Loads(0)
        measured.measured_at = now
        for name in self._COLUMNS:
            setattr(measured, name, getattr(self, name).copy())
        return measured

    def wait(self, now: float) -> Floats:
        """Return the seconds until each worker has finished its work."""
        left: Floats = self.queued + np.maximum(self.busy_until - now, 0.0)
        return left
