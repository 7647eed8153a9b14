"""Measures how long this process's event loop did not run, to exclude that time from peers'
silence.

A process that was stopped, starved of CPU or busy for long finds, when it continues, that all
peers have been silent. That is no evidence about the peers.
"""

import asyncio
from collections.abc import Callable
from typing import Any

PERIOD_SECONDS = 0.25
"""Part of a pause that counts as time in which the loop ran."""


class LoopWatch:
    """A timer of one event loop that measures how late it is called. Created by `loop_watch`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self._call_later = loop.call_later
        self._lost = 0.0
        self._due = self._time() + PERIOD_SECONDS
        self._call_later(PERIOD_SECONDS, self._tick)

    @property
    def lost_seconds(self) -> float:
        """Seconds in which the loop did not run, since the first use; never decreases."""
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
    """Measures time since its creation, without the time in which this process did not run."""

    __slots__ = ("_began", "_lost", "_time", "_watch")

    def __init__(self) -> None:
        self._watch = loop_watch()
        self._time = asyncio.get_running_loop().time
        self.restart()

    def restart(self) -> None:
        """Restart the measurement."""
        self._began = self._time()
        self._lost = self._watch.lost_seconds

    @property
    def seconds(self) -> float:
        return self._time() - self._began - (self._watch.lost_seconds - self._lost)


class Timer:
    """Calls back once, after this process ran for a given time, unless it is cancelled.

    It uses one timer of the loop, which checks the remaining time when it is due: restarting is
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
        """Restart the countdown, also if it is paused. Do nothing if it has called back."""
        self._paused = False
        self._waiting.restart()

    def pause(self) -> None:
        """Stop the countdown until a restart."""
        self._paused = True

    def cancel(self) -> None:
        """Drop the callback. Idempotent."""
        self._handle.cancel()

    def _look(self) -> None:
        left = self._seconds if self._paused else self._seconds - self._waiting.seconds
        if left > 0:
            self._handle = self._loop.call_later(left, self._look)
        else:
            self._callback()


class timeout:  # noqa: N801 - used as `asyncio.timeout` is
    """Cancel the block of `async with` after this process ran for `seconds`.

    Raises:
        TimeoutError: it was cancelled.
    """

    __slots__ = ("_bound", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __aenter__(self) -> None:
        self._bound = asyncio.timeout(None)
        await self._bound.__aenter__()
        self._timer = Timer(self._seconds, self._expire)

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        del self._timer  # it calls back here: a cycle, which would be left to the collector
        await self._bound.__aexit__(*error)

    def _expire(self) -> None:
        self._bound.reschedule(asyncio.get_running_loop().time())
