"""Lower priority for threads that may wait for a core."""

import os
import sys

BEHIND_STEPS = 10
"""Niceness of threads whose work may wait for a core when a decode step may not."""


def can_add_niceness() -> bool:
    """Return whether threads have their own niceness on this system."""
    return sys.platform == "linux"


def add_niceness(added: int) -> None:
    """Increase the niceness of the calling thread; do nothing on systems without per-thread
    niceness.

    Args:
        added: increase of its niceness, which the kernel caps at 19.
    """
    if added and can_add_niceness():
        niceness = os.getpriority(os.PRIO_PROCESS, 0)  # 0: Linux's calling thread
        os.setpriority(os.PRIO_PROCESS, 0, niceness + added)
