"""For how long this process's event loop did not run: no peer's silence of that time counts.

A process that was stopped, starved of a processor or busy for long finds, when it goes on, that
everybody has been silent. That says nothing about them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

PERIOD_SECONDS = 0.25
"""Of a pause, so much counts as time in which the loop ran."""


class LoopWatch:
    """A timer of one event loop that measures how late it is called. Made by `loop_watch`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self._call_later = loop.call_later
        self._lost = 0.0
        self._due = self._time() + PERIOD_SECONDS
        self._call_later(PERIOD_SECONDS, self._tick)

    @property
    def lost_seconds(self) -> float:
        """For how long, since the first use, the loop did not run; it never goes back."""
        return self._lost + max(0.0, self._time() - self._due)

    def _tick(self) -> None:
        now = self._time()
        self._lost += max(0.0, now - self._due)
        self._due = now + PERIOD_SECONDS
        self._call_later(PERIOD_SECONDS, self._tick)


_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


def loop_watch() -> LoopWatch:
    """Return the watch of the running loop."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        for closed in [one for one in _watches if one.is_closed()]:
            del _watches[closed]
        watch = _watches[loop] = LoopWatch(loop)
    return watch


class LoopStopwatch:
    """Measures from when it is made, without the time in which this process did not run."""

    __slots__ = ("_began", "_lost", "_time", "_watch")

    def __init__(self) -> None:
        self._watch = loop_watch()
        self._time = asyncio.get_running_loop().time
        self.restart()

    def restart(self) -> None:
        """Measure from now on."""
        self._began = self._time()
        self._lost = self._watch.lost_seconds

    @property
    def seconds(self) -> float:
        return self._time() - self._began - (self._watch.lost_seconds - self._lost)


class Timer:
    """Calls back once, after so much time in which this process ran, unless it is cancelled.

    It has one timer of the loop, which looks how much is left when it is due: so to restart is
    cheap, and may be done for every message.
    """

    __slots__ = ("_callback", "_handle", "_loop", "_paused", "_seconds", "_waiting")

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self._seconds = seconds
        self._paused = False
        self._callback = callback
        self._waiting = LoopStopwatch()
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(seconds, self._look)

    def restart(self) -> None:
        """Count from now on, whether or not it is paused. Where it has called back: do nothing."""
        self._paused = False
        self._waiting.restart()

    def pause(self) -> None:
        """Count no time until it is restarted."""
        self._paused = True

    def cancel(self) -> None:
        """Call nobody. Idempotent."""
        self._handle.cancel()

    def _look(self) -> None:
        left = self._seconds if self._paused else self._seconds - self._waiting.seconds
        if left > 0:
            self._handle = self._loop.call_later(left, self._look)
        else:
            self._callback()


@asynccontextmanager
async def timeout(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after so much time in which this process ran.

    Raises:
        TimeoutError: it was cancelled.
    """
    loop = asyncio.get_running_loop()
    timer = Timer(seconds, lambda: bound.reschedule(loop.time()))
    try:
        async with asyncio.timeout(None) as bound:
            yield
    finally:
        timer.cancel()
