"""When changes are told to those who follow them."""

import asyncio
from collections.abc import Callable


class Pacer:
    """Tells a change at once, and those that follow it together at the end of a pause.

    The pause is short for what is urgent and longer for all else, so that news which would change
    what its reader decides is fresh, and a state that only drifts costs a few messages a second.
    One event loop owns it; between changes it costs nothing.

    Args:
        tell: tells everything that changed; called from the loop, never from `changed`, so that
            the changes of one moment are told together.
        urgent_seconds: the shortest time between two times of telling.
        steady_seconds: the shortest time between the last one and one without anything urgent.
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
        """Have a change told, as soon as the pace allows it."""
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
        """Tell now, whatever the pace; the next pause begins here."""
        self.close()
        self._told_at = self._loop.time()
        self._tell()

    def close(self) -> None:
        """Drop what was to be told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = float("inf")
