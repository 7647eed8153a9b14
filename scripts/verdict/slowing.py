"""A busy machine that stalls now and then, for one run and its processes.

As many processes as there are cores compute all the time. At random, all processes of the run, or
one that runs tests, are stopped and continue after some tenths of a second. Tests read from a file
how long they were stopped, just as they read from the kernel how long they waited for a core
(tests/support/clock.py).
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.verdict.session import descendants

BURN = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
os.nice(int(sys.argv[2]))
while os.getppid() == int(sys.argv[1]):
    sum(range(1_000_000))
"""
NICE = 2
"""Niceness of the computing processes: slightly less important than the tests."""
MEAN_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 0.5
"""Longer than a scheduler makes a process wait, shorter than the time after which Baton considers a
process dead."""
MEAN_GAP_SECONDS = 1.0
ALL_PART = 0.5
"""Share of pauses that stop all processes at once, as when a host stops its guest."""


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Run this many computing processes; they end with this one."""
    command = [sys.executable, "-c", BURN, str(os.getpid()), str(NICE)]
    started = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


class Pauser:
    """Stops processes of a run at random, by a seed, on its own thread, until it is closed.

    Args:
        pid: the run's process; its descendants belong to the run.
        paused: the file from which tests read how long they were stopped.
        seed: determines which processes stop, when, and for how long.
    """

    def __init__(self, pid: int, paused: Path, seed: int) -> None:
        self._pid = pid
        self._paused = paused
        self._draw = random.Random(seed)
        self._ends = threading.Event()
        self.pauses = 0
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Continue all processes and stop no more."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._draw.expovariate(1 / MEAN_GAP_SECONDS)):
            run = descendants(self._pid)
            if self._draw.random() >= ALL_PART:
                workers = [pid for pid in run if _runs_tests(pid)]
                run = [self._draw.choice(workers)] if workers else []
            seconds = self._draw.expovariate(1 / MEAN_PAUSE_SECONDS)
            self._pause(run, min(seconds, LONGEST_PAUSE_SECONDS))

    def _pause(self, pids: list[int], seconds: float) -> None:
        stopped = []
        self.seconds += seconds
        draft = self._paused.with_suffix(".new")
        draft.write_text(str(self.seconds))
        draft.rename(self._paused)  # before it happens, so that no test counts it as its own
        try:
            for pid in pids:
                # A process that a test has stopped belongs to the test.
                if _state(pid) not in ("T", "Z", ""):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGSTOP)
                        stopped.append(pid)
            self.pauses += 1
            self._ends.wait(seconds)
        finally:
            for pid in reversed(stopped):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _runs_tests(pid: int) -> bool:
    """Return whether a process is pytest, or a worker of xdist."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"pytest" in line or b"sys.stdin.readline" in line  # as execnet starts them
