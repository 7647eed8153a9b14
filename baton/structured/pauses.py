"""Pauses of a thread that runs Python while others of its process have something to do."""

import time

_RUN_SECONDS = 0.0002
_SHARE = 6


class Pauses:
    """Keeps one thread from holding the interpreter's lock for long.

    A thread that computes in Python gives the lock up every 5 ms, and only to who waits for it: a
    decode step, which wants it back after every operator, would wait for all of a check. One that
    pauses six times as long as it ran slows others by a sixth at most.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def take(self) -> None:
        """Pause, if it is time; called every few microseconds."""
        ran = time.perf_counter() - self._began
        if ran > _RUN_SECONDS:
            time.sleep(_SHARE * min(ran, 2 * _RUN_SECONDS))  # it may have waited for a core
            self._began = time.perf_counter()

    def begin(self) -> None:
        """Forget what ran until now, as it did not hold the lock."""
        self._began = time.perf_counter()
