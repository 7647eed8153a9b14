"""Seconds that a busy machine does not take from a test.

A promise such as "within a second" is about what Baton does, on a machine that lets it. What other
programs, other tests and the machine's host take is not Baton's: the kernel counts it, and so a
bound holds to the letter on a quiet machine and stretches on a busy one. It never stretches beyond
LIMIT_SECONDS, or a long one beyond STRETCH times itself: what does not happen at all is noticed.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

PATIENCE_SECONDS = 30.0
"""Of a quiet machine: for what must come and has no bound of its own."""
LIMIT_SECONDS = 100.0
"""Seconds by the wall clock: a machine with other work stands still for seconds."""
DEADLINE_SECONDS = LIMIT_SECONDS
"""Of a call that has one because each call has, by the wall clock, as grpcio and httpx count."""
STRETCH = 2.0
LOOK_SECONDS = 0.01

PAUSED_ENV = "TESTS_PAUSED"
"""A file in which a run that is paused now and then finds for how many seconds it was."""

_PRESSURE = (Path("/proc/pressure/cpu"), Path("/proc/pressure/io"))
_STAT = Path("/proc/stat")
_WORK, _WORK_SECONDS = 10_000, 0.0014
"""What `slowness` does, and how long that takes on a quiet machine."""
_STOLEN = 8
"""Place on the first line of /proc/stat: ticks that the host gave to other machines, all cores."""


def lost_seconds() -> float:
    """Return for how long, since it started, something on this machine had to wait for it.

    For a core, a disk (Linux's pressure stall information, the `some` lines), or the host of a
    virtual machine; or was paused by who runs the tests (scripts/verdict). What waits for two of
    them counts twice. 0 where the kernel does not say.
    """
    lost = 0.0
    for path in _PRESSURE:
        try:
            some = path.read_text().split("\n", 1)[0]
        except OSError:
            continue
        lost += int(some.rpartition("total=")[2]) / 1e6
    return lost + stolen_seconds() + paused_seconds()


def stolen_seconds() -> float:
    """Return for how long, since it started, the host let this machine's cores wait."""
    try:
        cores = _STAT.read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return int(cores[_STOLEN]) / os.sysconf("SC_CLK_TCK")


def paused_seconds() -> float:
    """Return for how long, since they began, processes of this run of tests were paused."""
    try:
        return float(Path(os.environ[PAUSED_ENV]).read_text())
    except (KeyError, OSError):
        return 0.0


class Stopwatch:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lost = lost_seconds()

    @property
    def elapsed(self) -> float:
        """Seconds by the wall clock: no fewer than `seconds`."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds without those that the machine lost."""
        return max(0.0, self.elapsed - (lost_seconds() - self._lost))

    def remaining(self, seconds: float) -> float:
        """Return the least seconds until a bound can have passed; 0 once it has."""
        by_wall = seconds - self.elapsed
        if by_wall > 0:
            return by_wall
        limit = max(LIMIT_SECONDS, STRETCH * seconds)
        return max(0.0, min(seconds - self.seconds, limit - self.elapsed))


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cut what runs in here once so many seconds of a quiet machine have passed.

    Raises:
        TimeoutError: it was cut.
    """
    loop = asyncio.get_running_loop()
    watch = Stopwatch()

    def look() -> None:
        nonlocal timer
        if left := watch.remaining(seconds):
            timer = loop.call_later(max(left, LOOK_SECONDS), look)
        else:
            bound.reschedule(loop.time())

    timer = loop.call_later(seconds, look)
    try:
        async with asyncio.timeout(None) as bound:
            yield
    finally:
        timer.cancel()


def slowness() -> float:
    """Return how many times longer this machine takes now for a piece of work than a quiet one.

    Of the thread's own time: a core that others share, or that runs slowly, does less in it. 1 at
    the least; a quiet core of an Intel Xeon with AMX is the measure.
    """
    took = float("inf")
    for _ in range(3):
        began = time.thread_time()
        sum(len(str(number)) for number in range(_WORK))
        took = min(took, time.thread_time() - began)
    return max(1.0, took / _WORK_SECONDS)
