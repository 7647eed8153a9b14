"""Signals to a process and its children."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path


def family(pid: int) -> list[int]:
    """Return a process, and then its children."""
    found = [pid]
    for path in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            stat = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[1]) == pid:
                found.append(int(path.name))
    return found


def signal_all(pids: Sequence[int], number: int) -> None:
    """Send a signal to processes, ignoring those that ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@asynccontextmanager
async def frozen_family(pid: int, children_seconds: float = 0.0) -> AsyncIterator[None]:
    """Stop a process and its children until the block exits.

    Args:
        pid: the process.
        children_seconds: the children run for this time before the process does: a server of
            theirs completes what it was told before, and not what it is told now.
    """
    signal_all([pid], signal.SIGSTOP)  # it makes no more children
    pids = family(pid)
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids[1:], signal.SIGCONT)
        await asyncio.sleep(children_seconds)
        signal_all(pids[:1], signal.SIGCONT)
