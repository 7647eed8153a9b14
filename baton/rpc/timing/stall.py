"""Detects that a peer reads nothing of the data that waits for it."""

from collections.abc import Callable

from baton.rpc.timing.loop_watch import Timer

_LOOKS = 10


class Stall:
    """Calls back once a peer has read nothing for a while; a slow reader is no stall.

    It checks the amount of waiting data ten times in that period, so it is late by a tenth of it
    at most. Time in which this process does not run does not count.

    Args:
        seconds: time without a byte read, since creation or the last byte.
        waiting: returns how many bytes wait for the peer; more may come meanwhile.
        on_stall: called at most once.
    """

    __slots__ = ("_idle", "_on_stall", "_seconds", "_timer", "_waiting", "_were")

    def __init__(
        self, seconds: float, waiting: Callable[[], int], on_stall: Callable[[], None]
    ) -> None:
        self._seconds = seconds / _LOOKS
        self._waiting = waiting
        self._on_stall = on_stall
        self._were = waiting()
        self._idle = 0
        """Checks in a row at which nothing had been read."""
        self._timer = Timer(self._seconds, self._look)

    def cancel(self) -> None:
        """Drop the callback. Idempotent."""
        self._timer.cancel()

    def _look(self) -> None:
        were, self._were = self._were, self._waiting()
        self._idle = 0 if self._were < were else self._idle + 1
        if self._idle >= _LOOKS:
            self._on_stall()
        else:
            self._timer = Timer(self._seconds, self._look)
