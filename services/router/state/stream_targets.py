"""The target times between tokens of one worker's streams, as set by their classes."""

import math
from typing import NamedTuple


class StreamPlacement(NamedTuple):
    """Where the streams of a ticket run, and their target."""

    worker_id: str
    streams: int = 1
    itl_target: float = 0.0
    """Seconds between tokens; 0: their class sets no target."""


class StreamTargets:
    """The targets of one worker's streams, of all open tickets. Owned by one event loop."""

    __slots__ = ("_counts", "streams", "strictest")

    def __init__(self) -> None:
        self._counts: dict[float, int] = {}
        """Number of streams by target."""
        self.streams = 0
        self.strictest = math.inf
        """The lowest target, in seconds; infinite: no stream's class sets any."""

    def cover(self, running: int) -> bool:
        """Return whether each of the given number of streams has a target of its class.

        Args:
            running: all streams of the worker, including those placed by other routers.
        """
        return 0.0 not in self._counts and self.streams >= running

    def add(self, target: float, streams: int) -> None:
        """Count new streams."""
        self._counts[target] = self._counts.get(target, 0) + streams
        self.streams += streams
        if 0.0 < target < self.strictest:
            self.strictest = target

    def end(self, target: float, streams: int) -> None:
        """Stop counting streams that were added."""
        self.streams -= streams
        left = self._counts[target] - streams
        if left:
            self._counts[target] = left
            return
        del self._counts[target]
        if target == self.strictest:
            self.strictest = min((one for one in self._counts if one), default=math.inf)
