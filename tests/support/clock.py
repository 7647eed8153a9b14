"""Time limits for tests that do not count the time that a busy machine takes away.

A promise such as "within a second" applies to Baton on a machine that lets it run. Time taken by
other programs, other tests and the machine's host does not count: the kernel reports it. A limit is
therefore exact on a quiet machine and longer on a busy one. It never exceeds LIMIT_SECONDS, or
STRETCH times itself if it is long: an event that never happens is still detected.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

PATIENCE_SECONDS = 30.0
"""Seconds of a quiet machine to wait for an event that has no limit of its own."""
LIMIT_SECONDS = 100.0
"""Seconds by the wall clock: a machine with other work may stall for seconds."""
DEADLINE_SECONDS = LIMIT_SECONDS
"""Deadline of calls whose deadline does not matter, by the wall clock, as grpcio and httpx
count."""
STRETCH = 2.0
LOOK_SECONDS = 0.01

PAUSED_ENV = "TESTS_PAUSED"
"""Names the file in which a run that is paused at times finds the total pause in seconds."""

_PRESSURE = (Path("/proc/pressure/cpu"), Path("/proc/pressure/io"))
_STAT = Path("/proc/stat")
_WORK, _WORK_SECONDS = 10_000, 0.0014
"""The work of `slowness`, and its duration on a quiet machine."""
_STOLEN = 8
"""Position on the first line of /proc/stat: ticks that the host gave to other machines, all
cores."""


def lost_seconds() -> float:
    """Return the total time for which a process of this machine had to wait for it.

    Waiting means for a core or a disk (Linux's pressure stall information, the `some` lines), for
    the host of a virtual machine, or while paused by scripts/verdict. Waiting for two of them
    counts twice. 0 if the kernel does not report it.
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
    """Return the total time for which the host made this machine's cores wait."""
    try:
        cores = _STAT.read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    return int(cores[_STOLEN]) / os.sysconf("SC_CLK_TCK")


def paused_seconds() -> float:
    """Return the total time for which processes of this test run were paused."""
    try:
        return float(Path(os.environ[PAUSED_ENV]).read_text())
    except (KeyError, OSError):
        return 0.0


class Stopwatch:
    """Measures the time since its creation."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lost = lost_seconds()

    @property
    def elapsed(self) -> float:
        """Seconds by the wall clock; at least `seconds`."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> float:
        """Seconds without those that the machine lost."""
        return max(0.0, self.elapsed - (lost_seconds() - self._lost))

    def remaining(self, seconds: float) -> float:
        """Return the least time until a limit can have passed; 0 once it has."""
        by_wall = seconds - self.elapsed
        if by_wall > 0:
            return by_wall
        limit = max(LIMIT_SECONDS, STRETCH * seconds)
        return max(0.0, min(seconds - self.seconds, limit - self.elapsed))


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after this many seconds of a quiet machine.

    Raises:
        TimeoutError: the block was cancelled.
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
    """Return how many times longer this machine now takes for some work than a quiet one.

    By the CPU time of this thread: a shared or slow core does less in it. At least 1; the reference
    is a quiet core of an Intel Xeon with AMX.
    """
    took = float("inf")
    for _ in range(3):
        began = time.thread_time()
        sum(len(str(number)) for number in range(_WORK))
        took = min(took, time.thread_time() - began)
    return max(1.0, took / _WORK_SECONDS)
