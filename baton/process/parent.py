"""Processes that a supervisor started die with it, however it dies."""

import ctypes
import os
import signal
import sys

PARENT_ENV = "BATON_PARENT_PID"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, if the parent wants that of us.

    The parent does by setting BATON_PARENT_PID to its own pid. The signal comes when the *thread*
    that started this process ends: start processes from a thread that lives as long as the parent.
    Exits at once if the parent is gone already.
    """
    parent = os.environ.get(PARENT_ENV, "")
    if not parent or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # The parent may have died before the kernel knew of our wish.
    if str(os.getppid()) != parent:
        sys.exit(0)
