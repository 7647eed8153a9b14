"""Which times between tokens the streams of one worker are to keep, as their classes say."""

import math
from typing import NamedTuple


class StreamPlacement(NamedTuple):
    """Where the streams of a ticket run, and what they are to keep."""

    worker_id: str
    streams: int = 1
    itl_target: float = 0.0
    """Seconds between tokens; 0: their class says nothing."""


class StreamTargets:
    """The targets of one worker's streams, of all tickets that are open. One loop owns it."""

    __slots__ = ("_counts", "streams", "strictest")

    def __init__(self) -> None:
        self._counts: dict[float, int] = {}
        """Streams by target."""
        self.streams = 0
        self.strictest = math.inf
        """The lowest target, in seconds; infinite: no stream's class says any."""

    def cover(self, running: int) -> bool:
        """Return whether each of so many streams has a target of its class.

        Args:
            running: all streams of the worker, those that other routers placed included.
        """
        return 0.0 not in self._counts and self.streams >= running

    def add(self, target: float, streams: int) -> None:
        """Count streams that begin."""
        self._counts[target] = self._counts.get(target, 0) + streams
        self.streams += streams
        if 0.0 < target < self.strictest:
            self.strictest = target

    def end(self, target: float, streams: int) -> None:
        """Count streams no longer that were added."""
        self.streams -= streams
        left = self._counts[target] - streams
        if left:
            self._counts[target] = left
            return
        del self._counts[target]
        if target == self.strictest:
            self.strictest = min((one for one in self._counts if one), default=math.inf)
