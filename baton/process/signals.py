"""SIGTERM and SIGINT, received by a thread: the main thread may be in a call that does not end."""

import asyncio
import os
import signal
import socket
import threading
import time
from types import FrameType

from baton.telemetry import logs

log = logs.get_logger(__name__)

SAME_SIGNAL_SECONDS = 0.5
"""Signals this close count as one: the death of a parent is signalled once per thread of the
parent."""
EXIT_FAILED = 1

_STOPPING = (signal.SIGTERM, signal.SIGINT)


class ShutdownSignals:
    """The first signal starts the shutdown; a second one, or a shutdown that takes too long, aborts
    it.

    Python runs the handlers of signals in the main thread, between two of its instructions: never
    while that thread computes or waits in C. The interpreter's own C handler writes the signal's
    number to a socket at once (`signal.set_wakeup_fd`), and a thread reads it from there.

    Args:
        limit: seconds that a shutdown may take.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._first_at: float | None = None
        self._first = signal.SIGTERM
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        self._written, self._read = socket.socketpair()
        self._written.setblocking(False)

    def take(self) -> None:
        """Receive signals from now on. Called by the main thread."""
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in _STOPPING:
            signal.signal(number, _leave_it_to_the_thread)
        threading.Thread(target=self._receive, name="signals", daemon=True).start()

    def stop_with(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        """Set an event of the running loop at the first signal, also if that came before.

        Called by the main thread. A running loop of uvloop has a descriptor of its own that signals
        are written to; it puts back ours when it ends.
        """
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        with self._lock:
            self._loop, self._stopping = loop, stopping
            if self._first_at is not None:
                self._stop()

    def arm(self) -> None:
        """Exit immediately once the limit is over, even if the event loop is stuck."""
        with self._lock:
            self._arm()

    def _receive(self) -> None:
        while True:
            for number in self._read.recv(64):
                if number in _STOPPING:
                    self._received(signal.Signals(number))

    def _received(self, number: signal.Signals) -> None:
        now = time.monotonic()
        with self._lock:
            self._arm()
            if self._first_at is None:
                self._first_at, self._first = now, number
            elif now - self._first_at > SAME_SIGNAL_SECONDS:
                _exit_now("received a second signal")
            if self._loop is not None and not self._loop.is_closed():  # else it is exiting already
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        assert self._stopping is not None, "a loop comes with its event"
        if not self._stopping.is_set():
            log.info("process.service.stopping", signal=self._first.name)
            self._stopping.set()

    def _arm(self) -> None:
        if self._timer is None:
            reason = f"shutdown took longer than {self._limit:g} s"
            self._timer = threading.Timer(self._limit, _exit_now, (reason,))
            self._timer.daemon = True
            self._timer.start()


def _leave_it_to_the_thread(_: int, __: FrameType | None) -> None:
    """Handle a signal by nothing: with the default handler the process would end."""


def _exit_now(reason: str) -> None:
    # Nobody may be reading our lines: then writing one blocks, and must not keep us here.
    line = threading.Thread(
        target=log.error, args=("exit without cleaning up",), kwargs={"reason": reason}, daemon=True
    )
    line.start()
    line.join(0.5)
    os._exit(EXIT_FAILED)
