"""Threads that leave the cores to others."""

import os
import sys

BEHIND_STEPS = 10
"""Niceness of threads whose work may wait for a core where a decode step may not."""


def can_add_niceness() -> bool:
    """Return whether this system's threads have a niceness of their own."""
    return sys.platform == "linux"


def add_niceness(added: int) -> None:
    """Make the calling thread nicer than it is; one of a system without that stays as it is.

    Args:
        added: to its niceness, of which the kernel makes 19 at most.
    """
    if added and can_add_niceness():
        niceness = os.getpriority(os.PRIO_PROCESS, 0)  # 0: Linux's calling thread
        os.setpriority(os.PRIO_PROCESS, 0, niceness + added)
