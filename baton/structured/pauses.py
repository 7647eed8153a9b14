"""Pauses of a thread that runs Python while other threads of the process have work."""

import time

_RUN_SECONDS = 0.0002
_SHARE = 6


class Pauses:
    """Keeps one thread from holding the interpreter's lock for long.

    A thread that computes in Python releases the lock every 5 ms, and only to a waiting thread: a
    decode step, which needs it after every operator, would wait for an entire check. A thread that
    pauses six times as long as it ran slows others by at most a sixth.
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
        """Restart the count, as time until now was spent without the lock."""
        self._began = time.perf_counter()
