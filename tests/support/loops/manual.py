"""The clock and timers of an event loop, advanced by the test."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class _Handle:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualLoop:
    """Provides `time`, `call_soon`, `call_at` and `call_later`; due callbacks run in `advance`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, _Handle]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> _Handle:
        return self.call_at(self.now, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> _Handle:
        return self.call_at(self.now + delay, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> _Handle:
        handle = _Handle(lambda: callback(*args))
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def advance(self, seconds: float) -> None:
        """Advance the time; each callback runs at its own time."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, handle = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if handle.callback is not None:
                handle.callback()
        self.now = end
