"""Stopped processes, as in a debugger or on a machine that swaps."""

import os
import signal
from pathlib import Path

from tests.support.wait import eventually_blocking


def freeze(pid: int) -> None:
    """Stop a process, and return once all of its threads have stopped, which happens one by one."""
    os.kill(pid, signal.SIGSTOP)
    eventually_blocking(lambda: all(_stands(thread) for thread in _threads(pid)))


def thaw(pid: int) -> None:
    """Continue the process."""
    os.kill(pid, signal.SIGCONT)


def _threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _stands(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TtZ"
