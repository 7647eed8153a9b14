"""Pacing of change notifications."""

import asyncio
from collections.abc import Callable


class Pacer:
    """Reports a change immediately, and those that follow together at the end of a pause.

    The pause is short for urgent changes and longer for others, so that changes that affect a
    reader's decisions are fresh, and a slowly drifting state costs a few messages a second. One
    event loop owns it; between changes it costs nothing.

    Args:
        tell: reports everything that changed; called from the loop, never from `changed`, so that
            simultaneous changes are reported together.
        urgent_seconds: the shortest time between two reports.
        steady_seconds: the shortest time between the last report and a non-urgent one.
        loop: the clock and its timers; by default the running one.
    """

    def __init__(
        self,
        tell: Callable[[], None],
        urgent_seconds: float,
        steady_seconds: float,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._tell = tell
        self._urgent_seconds = urgent_seconds
        self._steady_seconds = max(steady_seconds, urgent_seconds)
        self._loop = loop or asyncio.get_running_loop()
        self._told_at = float("-inf")
        self._due = float("inf")
        self._timer: asyncio.Handle | None = None

    def changed(self, urgent: bool = False) -> None:
        """Schedule the report of a change, as soon as the pace allows it."""
        due = self._told_at + (self._urgent_seconds if urgent else self._steady_seconds)
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
        self._due = due
        if due <= self._loop.time():
            self._timer = self._loop.call_soon(self.tell)
        else:
            self._timer = self._loop.call_at(due, self.tell)

    def tell(self) -> None:
        """Report now, regardless of the pace; the next pause begins here."""
        self.close()
        self._told_at = self._loop.time()
        self._tell()

    def close(self) -> None:
        """Drop pending reports."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = float("inf")
