"""Threads that wait for a core where others may not."""

import os
import sys
import threading

NICENESS = 10


def lower_thread_priority() -> None:
    """Lower the calling thread's priority: its work may wait for a core, a decode step may not."""
    if sys.platform == "linux":  # where a thread has a niceness of its own
        thread = threading.get_native_id()
        niceness = max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread))
        os.setpriority(os.PRIO_PROCESS, thread, niceness)
